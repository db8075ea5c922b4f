"""What the paper claims in words, as data: `claims.toml` beside this file explains its keys."""

import functools
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from ocil.paper.published import Printed, printed

Filter = Mapping[str, Any]
# The paper's data sets, and the part of Tiny-ImageNet that we run.
DATA = (*dict.fromkeys(number.data for number in printed()), "tiny-imagenet-20")
EVERYWHERE = {"split": "test", "order": "split", "data": list(DATA)}
SEVERAL = 2  # passes over each task, for a number of the offline table: it does not say how many
OF_A_SIDE = ("readout", "metric")  # not settings: how a side's runs are measured


@dataclass(frozen=True)
class Comparison:
    """Left is held to be better than right in a metric."""

    left: Filter
    right: Filter
    where: Filter = field(default_factory=dict)
    metric: str = "accuracy"
    better: Literal["higher", "lower"] = "higher"
    scale: Literal["plain", "log"] = "plain"
    free: Sequence[str] = ()
    across: Literal["", "memory"] = ""
    rank: int = 0
    source: Literal["runs", "mixture", "costs", "growth", "modality"] = "runs"
    studies: Literal["", "methods", "all"] = ""
    note: str = ""
    called: Sequence[str] = ()

    @property
    def between_methods(self) -> bool:
        return "method" in self.left

    @property
    def only_methods(self) -> bool:
        """Whether only studies that run methods as they are count."""
        return (self.studies or ("methods" if self.between_methods else "all")) == "methods"

    @property
    def varied(self) -> frozenset[str]:
        """Settings in which the sides may differ."""
        sides = (set(self.left) | set(self.right)) - set(OF_A_SIDE)
        measured = {"readout"} if "readout" in self.left else set()
        return frozenset(sides | measured | set(self.free) | ({self.across} - {""}))

    def lefts(self) -> list[Filter]:
        return list(_each(self.left))

    def rights(self) -> list[Filter]:
        return list(_each(self.right))


@dataclass(frozen=True)
class Claim:
    """A sentence, where the paper says it, and what decides it; nothing: no record measures it."""

    text: str
    place: str
    compare: tuple[Comparison, ...] = ()


@functools.cache
def claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the file."""
    file = files("ocil.paper") / "claims.toml"
    return tuple(map(claim, tomllib.loads(file.read_text(encoding="utf-8"))["claim"]))


def claim(table: Mapping[str, Any]) -> Claim:
    """A [[claim]] of the file."""
    comparisons = tuple(Comparison(**each) for each in table.get("compare", []))
    return Claim(table["text"], table["place"], comparisons)


def _each(side: Filter) -> Iterator[Filter]:
    """A list in a side stands for one filter each.

    >>> list(_each({"method": ["er", "gsa"], "preset": "default"}))
    [{'method': 'er', 'preset': 'default'}, {'method': 'gsa', 'preset': 'default'}]
    """
    lists = [value if isinstance(value, list) else [value] for value in side.values()]
    for values in itertools.product(*lists):
        yield dict(zip(side, values, strict=True))


def fits(settings: Mapping[str, Any], wanted: Filter) -> bool:
    """Whether settings have the wanted values; a list is any of them, { above = x } more than x.

    >>> fits({"preserve": 0.5}, {"preserve": {"above": 0}}), fits({}, {"updates": 1})
    (True, False)
    """
    return all(key in settings and _is(settings[key], value) for key, value in wanted.items())


def _is(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return type(value) in (int, float) and value > wanted["above"]
    if isinstance(wanted, list):
        return any(_is(value, one) for one in wanted)
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted


def own_tables(claim: Claim) -> str:
    """In how many cells of the paper's tables a claim holds, and where it does not: the same
    comparisons on its means, so by the sign of a difference alone."""
    asked = [answer for comparison in claim.compare for answer in _answers(comparison)]
    wrong = [where for where, holds in asked if not holds]
    if not asked:
        return ""
    shown = f"holds in {len(asked) - len(wrong)} of {len(asked)}"
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return f"{shown}; not: {', '.join(wrong[:3])}{more}" if wrong else shown


def _answers(comparison: Comparison) -> Iterator[tuple[str, bool]]:
    """(cell, whether it holds there) for every cell that has the numbers."""
    if comparison.source != "runs":
        return
    lefts = [_numbers(comparison, side) for side in comparison.lefts()]
    rights = [_numbers(comparison, side) for side in comparison.rights()]
    if comparison.across:
        yield from _leads(lefts, rights)
        return
    sign = 1 if comparison.better == "higher" else -1
    for mine in lefts:
        for place, number in mine.items():
            where = f"{number.data} {number.memory}"
            rivals = [theirs[place] for theirs in rights if place in theirs]
            worse = [sign * (number.value - rival.value) < 0 for rival in rivals]
            if comparison.rank and rivals:
                yield where, sum(worse) < comparison.rank
            for rival in () if comparison.rank else rivals:
                told = f"{number.value:g} against {rival.value:g} of {rival.method}"
                yield f"{where} ({told})", sign * (number.value - rival.value) > 0


def _leads(
    lefts: Sequence[Mapping[Any, Printed]], rights: Sequence[Mapping[Any, Printed]]
) -> Iterator[tuple[str, bool]]:
    """Whether the lead over the best rival is larger at the smallest memory than at each other."""
    for mine in lefts:
        leads: dict[str, dict[int, float]] = {}
        for place, number in mine.items():
            rivals = [theirs[place].value for theirs in rights if place in theirs]
            if rivals:
                leads.setdefault(number.data, {})[number.memory] = number.value - max(rivals)
        for data, by_memory in leads.items():
            least = min(by_memory)
            for memory in sorted(set(by_memory) - {least}):
                yield f"{data} {memory}", by_memory[least] > by_memory[memory]


def _numbers(comparison: Comparison, side: Filter) -> dict[Any, Printed]:
    """The numbers of a side by all that both sides must share."""
    found = {}
    for number in printed():
        if number.metric == comparison.metric and fits(
            _settings(number), {**EVERYWHERE, **comparison.where, **side}
        ):
            same = {k: v for k, v in _settings(number).items() if k not in comparison.varied}
            place = (number.memory, *sorted(same.items()))
            found[place] = number
    return found


def _settings(number: Printed) -> dict[str, Any]:
    """A printed number as a run's settings, for filters."""
    passes = SEVERAL if number.offline else 1
    named = {"method": number.method, "data": number.data, "memory": number.memory}
    return {**named, "epochs": passes, "split": "test", "order": "split", **number.settings}
