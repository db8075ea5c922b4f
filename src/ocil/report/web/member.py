"""A group of runs as the pictures of its section know it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ocil import text
from ocil.report.charts import Series
from ocil.report.compare import name_of
from ocil.report.groups import Group, labels


class Member(NamedTuple):
    """A group with its look in every picture of its section, its label and its id on the page.

    The label tells it from other groups of its method only, so that a name is short.
    """

    look: int
    group: Group
    label: str
    key: str

    @property
    def name(self) -> str:
        return text.plain(name_of(self.group, self.label))

    def series(self, told: str, x: float, y: float, ends: tuple[float, float] | None) -> Series:
        """One mark that leads to the group's runs."""
        low, high = ([ends[0]], [ends[1]]) if ends else ((), ())
        return Series(self.name, [x], [y], low, high, self.look, f"#{self.key}", [told])


def members(groups: Sequence[Group], section: int) -> list[Member]:
    """The groups of a section; those with the same name have the same look at every memory."""
    found: dict[int, str] = {}
    for method in dict.fromkeys(g.method for g in groups):
        own = [g for g in groups if g.method == method]
        found |= {id(g): label for g, label in zip(own, labels(own), strict=True)}
    names = list(dict.fromkeys((g.method, found[id(g)]) for g in groups))
    return [
        Member(names.index((g.method, found[id(g)])), g, found[id(g)], f"g{section}-{place}")
        for place, g in enumerate(groups)
    ]
