"""Runs that differ by nothing but their seed form a group; its numbers are derived here.

Every number comes from the evaluations and tasks of the records, never from stored averages.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocil import text
from ocil.run import metrics
from ocil.settings import with_role

Record = Mapping[str, Any]

# Runs that differ only by these are one group; preset and read-out are taken from the record,
# which holds what they were resolved to. A preset is only a name for settings (as in the job id).
INCIDENTAL = with_role("machine", "keep", "measure", "name") | {"seed"}
# Settings that have a column or a heading of their own and need no place in a label.
NAMED = frozenset({"method", "data", "memory", "split", "validate", "study"})

METRICS = ("accuracy", "forgetting", "learning", "backward", "anytime", "worst")

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


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one configuration, one per seed, in order of seed."""

    records: tuple[Record, ...]
    _numbers: dict[str, list[dict[str, float | None]]] = field(default_factory=dict, repr=False)

    @property
    def first(self) -> Record:
        """Speaks for the group in everything but seed and outcome."""
        return self.records[0]

    @property
    def method(self) -> str:
        return self.first["method"]

    @property
    def data(self) -> str:
        return self.first["data"]

    @property
    def memory(self) -> int | None:
        return self.first.get("memory")

    @property
    def split(self) -> str:
        return self.first["split"]

    @property
    def readout(self) -> str:
        """The read-out that the runs report."""
        return self.first["readout"]

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        return tuple(record["seed"] for record in self.records)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What tells groups apart: the settings, and facts recorded beside them."""
        first = self.first
        fingerprint = first.get("data_fingerprint")
        facts = {
            "epochs": first.get("epochs"),
            "readout": first["readout"],
            "tasks": len(first["tasks"]),
            "fingerprint": fingerprint and fingerprint[:8],
        }
        facts = {k: v for k, v in facts.items() if v is not None}
        return {k: v for k, v in first["settings"].items() if k not in INCIDENTAL} | facts

    def numbers(self, readout: str) -> list[dict[str, float | None]]:
        """The metrics of a read-out, one dict (keys METRICS) per run."""
        if readout not in self._numbers:
            self._numbers[readout] = [derive(record, readout) for record in self.records]
        return self._numbers[readout]

    def summary(self, metric: str, readout: str | None = None) -> Summary | None:
        """A metric of a read-out (the reported one by default) over the runs that have it."""
        return summarise([run[metric] for run in self.numbers(readout or self.readout)])

    def fact(self, key: str, factor: float = 1.0) -> Summary | None:
        """A number that the records hold, such as seconds, over the runs that have it."""
        values = [record.get(key) for record in self.records]
        return summarise([None if value is None else factor * value for value in values])

    def matrices(self, readout: str) -> NDArray[np.float64]:
        """Accuracy matrices of the runs: (runs, T, T)."""
        return np.stack(
            [metrics.accuracy_matrix(r["evaluations"], r["tasks"], readout) for r in self.records]
        )


def derive(record: Record, readout: str) -> dict[str, float | None]:
    """Every metric of one run and read-out; None where it is not defined."""
    evaluations, tasks = record["evaluations"], record["tasks"]
    matrix = metrics.accuracy_matrix(evaluations, tasks, readout)
    final = metrics.final_average_accuracy(matrix)
    return {
        "accuracy": None if np.isnan(final) else final,
        "forgetting": metrics.average_forgetting(matrix),
        "learning": metrics.learning_accuracy(matrix),
        "backward": metrics.backward_transfer(matrix),
        "anytime": metrics.average_anytime_accuracy(evaluations, readout),
        "worst": metrics.worst_case_accuracy(evaluations, tasks, readout),
    }


def group(records: Iterable[Record]) -> list[Group]:
    """Groups in a fixed order: data, test before validation, memory, method, settings."""
    found: dict[str, dict[int, Record]] = {}
    for record in records:
        runs = found.setdefault(_key(record), {})
        if record["seed"] in runs:
            _log.info("Seed %s of %s is there twice; one counts.", record["seed"], record["method"])
        runs.setdefault(record["seed"], record)
    ordered = sorted(found.items(), key=lambda item: _order(next(iter(item[1].values())), item[0]))
    return [Group(tuple(runs[seed] for seed in sorted(runs))) for _, runs in ordered]


def labels(groups: Sequence[Group], known: frozenset[str] = frozenset()) -> list[str]:
    """For each group the settings that differ between the groups of its data and split: "steps=2".

    A setting that varies within a method is shown in every row that knows it. One that only
    differs from method to method is shown where it is not the value of the majority, so that
    what belongs to one method (such as joint learning's order) does not fill every row.
    What the reader sees elsewhere (`known`) is left out.
    """
    parts: dict[int, list[str]] = {id(g): [] for g in groups}
    for place in sorted({(g.data, g.split) for g in groups}):
        here = [g for g in groups if (g.data, g.split) == place]
        for key in sorted({key for g in here for key in g.settings} - NAMED - known):
            for g in _shown_in(key, [g for g in here if key in g.settings], here):
                parts[id(g)].append(f"{text.plain(key, 40)}={text.setting(g.settings[key])}")
    return [", ".join(parts[id(g)]) for g in groups]


def readouts(groups: Iterable[Group]) -> list[str]:
    """Every read-out of the groups, in the order in which the records name them."""
    return list(dict.fromkeys(name for g in groups for name in g.first["readouts"]))


def _shown_in(key: str, having: list[Group], groups: list[Group]) -> list[Group]:
    values = [json.dumps(g.settings[key], sort_keys=True) for g in having]
    within = {(g.method, json.dumps(g.settings.get(key), sort_keys=True)) for g in groups}
    if len(within) > len({g.method for g in groups}):
        return having
    return [g for g, v in zip(having, values, strict=True) if 2 * values.count(v) <= len(values)]


def _key(record: Record) -> str:
    parts = [record.get(k) for k in ("method", "data", "memory", "split")]
    return json.dumps([*parts, Group((record,)).settings], sort_keys=True)


def _order(record: Record, key: str) -> tuple[Any, ...]:
    memory = record.get("memory")
    return record["data"], record["split"], memory is None, memory or 0, record["method"], key


def summarise(values: Iterable[float | None]) -> Summary | None:
    """Mean and deviation of the values that are known; None where none is."""
    known = [float(value) for value in values if value is not None]
    return Summary(*metrics.mean_and_deviation(known), len(known)) if known else None
