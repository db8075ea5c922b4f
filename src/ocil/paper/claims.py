"""What the paper claims in words, as data: `claims.toml` beside this file explains its keys."""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

from ocil.paper.published import printed

Filter = Mapping[str, Any]
# The paper's data sets, and the part of Tiny-ImageNet that we run.
DATA = (*dict.fromkeys(number.data for number in printed()), "tiny-imagenet-20")
EVERYWHERE = {"split": "test", "order": "split", "data": list(DATA)}
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

    >>> fits({"preserve": 0.5}, {"preserve": {"above": 0}}), fits({}, {"steps": 1})
    (True, False)
    """
    return all(key in settings and _is(settings[key], value) for key, value in wanted.items())


def _is(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return type(value) in (int, float) and value > wanted["above"]
    if isinstance(wanted, list):
        return any(_is(value, one) for one in wanted)
    return isinstance(value, bool) == isinstance(wanted, bool) and value == wanted
