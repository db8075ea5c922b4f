"""Runs that differ by nothing but their seed form a group."""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ocil import text
from ocil.report.runs import Run
from ocil.run import metrics

# Settings that have a column or a heading of their own and need no place in a label.
NAMED = frozenset({"method", "data", "memory", "split", "validate", "study"})

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Summary:
    """Mean and deviation (n - 1; None for one value) over n runs."""

    mean: float
    deviation: float | None
    n: int

    def __str__(self) -> str:
        shown = f"{self.mean:.2f}"
        return shown if self.deviation is None else f"{shown} ± {self.deviation:.2f}"


def summarise(values: Iterable[float | None]) -> Summary | None:
    """Mean and deviation of the values that are known; None where none is."""
    known = [float(value) for value in values if value is not None]
    return Summary(*metrics.mean_and_deviation(known), len(known)) if known else None


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one configuration, one per seed, in order of seed."""

    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        """Speaks for the group in everything but seed and outcome."""
        return self.runs[0]

    @property
    def method(self) -> str:
        return self.first.method

    @property
    def data(self) -> str:
        return self.first.data

    @property
    def memory(self) -> int | None:
        return self.first.memory

    @property
    def preset(self) -> str:
        return text.plain(self.first.settings.get("preset", "default"), 40)

    @property
    def split(self) -> str:
        return self.first.split

    @property
    def readout(self) -> str:
        return self.first.readout

    @property
    def readouts(self) -> Sequence[str]:
        return self.first.record["readouts"]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.seed for run in self.runs)

    @property
    def settings(self) -> dict[str, Any]:
        return self.first.configuration

    def values(self, metric: str, readout: str | None = None) -> list[float]:
        """A metric of the runs that have it."""
        known = [run.value(metric, readout or self.readout) for run in self.runs]
        return [value for value in known if value is not None]

    def summary(self, metric: str, readout: str | None = None) -> Summary | None:
        """A metric of a read-out (the reported one by default) over the runs that have it."""
        return summarise(self.values(metric, readout))

    def fact(self, key: str, factor: float = 1.0) -> Summary | None:
        """A number that the records hold, such as seconds, over the runs that have it."""
        values = [run.record.get(key) for run in self.runs]
        return summarise([None if value is None else factor * value for value in values])


def group(runs: Iterable[Run]) -> list[Group]:
    """Groups in a fixed order: data, test before validation, memory, method, settings."""
    found: dict[str, dict[int, Run]] = {}
    for run in runs:
        same = found.setdefault(_key(run), {})
        if run.seed in same:
            _log.info("Seed %s of %s is there twice; one counts.", run.seed, run.method)
        same.setdefault(run.seed, run)
    ordered = sorted(found.items(), key=lambda item: _order(next(iter(item[1].values())), item[0]))
    return [Group(tuple(same[seed] for seed in sorted(same))) for _, same in ordered]


def by_place(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups of each data set and split, test before validation."""
    places = sorted({(g.split, g.data) for g in groups})
    return [[g for g in groups if (g.split, g.data) == place] for place in places]


def labels(groups: Sequence[Group], known: frozenset[str] = frozenset()) -> list[str]:
    """For each group the settings that differ between those of its data and split: "updates=2".

    A setting that varies within a method is shown in every row that knows it, but for a value that
    more than three quarters of four and more rows have. One that only differs from method to method
    is shown where it is not the value of the majority, so that what belongs to one method (such as
    joint learning's order) does not fill every row. Runs with another preset than most of their
    method are told by it and compared among themselves.
    What the reader sees elsewhere (`known`) is left out.
    """
    parts: dict[int, list[str]] = {}
    for place in by_place(groups):
        several = len({(g.method, g.preset) for g in place}) > len({g.method for g in place})
        for preset in {g.preset for g in place} if several else {"default"}:
            here = [g for g in place if not several or g.preset == preset]
            parts |= {id(g): [f"preset {preset}"] * (preset != "default") for g in here}
            for key in sorted({key for g in here for key in g.settings} - NAMED - known):
                for g in _shown_in(key, [g for g in here if key in g.settings], here):
                    parts[id(g)].append(f"{text.plain(key, 40)}={text.setting(g.settings[key])}")
    return [", ".join(parts[id(g)]) for g in groups]


def own_labels(groups: Sequence[Group], known: frozenset[str] = frozenset()) -> dict[int, str]:
    """By the id of each group: what tells it from other groups of its method."""
    found: dict[int, str] = {}
    for method in {g.method for g in groups}:
        own = [g for g in groups if g.method == method]
        found |= {id(g): label for g, label in zip(own, labels(own, known), strict=True)}
    return found


def names(groups: Sequence[Group], known: frozenset[str] = frozenset()) -> list[str]:
    """Of each its method, and memory and settings that tell it from others of the method."""
    told, found = own_labels(groups, known), []
    for g in groups:
        several = len({other.memory for other in groups if other.method == g.method}) > 1
        parts = [f"memory {g.memory}"] * several + [told[id(g)]] * bool(told[id(g)])
        found.append(text.plain(f"{g.method} ({', '.join(parts)})" if parts else g.method))
    return found


def readouts(groups: Iterable[Group]) -> list[str]:
    """Every read-out of the groups, in the order in which the records name them."""
    return list(dict.fromkeys(name for g in groups for name in g.readouts))


def _shown_in(key: str, having: list[Group], groups: list[Group]) -> list[Group]:
    values = [json.dumps(g.settings[key], sort_keys=True) for g in having]
    within = {(g.method, json.dumps(g.settings.get(key), sort_keys=True)) for g in groups}
    varies = len(within) > len({g.method for g in groups})
    usual = len(values) * (0.75 if varies else 0.5)  # rows that hold the same value
    few = varies and len(values) < 4
    return [g for g, v in zip(having, values, strict=True) if few or values.count(v) <= usual]


def _key(run: Run) -> str:
    parts = [run.method, run.data, run.memory, run.split, run.configuration]
    return json.dumps(parts, sort_keys=True)


def _order(run: Run, key: str) -> tuple[Any, ...]:
    return run.data, run.split, run.memory is None, run.memory or 0, run.method, key
