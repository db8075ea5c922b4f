"""Intervals of groups of runs, and paired differences between them.

Runs are paired by their seed, which fixes class order, tasks and the images of each task: what
differs within a pair is the method, so its difference varies less than either accuracy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from ocil import text
from ocil.report.groups import Group
from ocil.report.render import NOTHING, Cell, Strong, Table
from ocil.run.metrics import paired_difference

FEWEST = 3  # runs; with two, the factor of the interval is 12.7
MOST = 16  # groups that are compared with each other


def name_of(g: Group, label: str) -> str:
    """The method, and what tells this group from others of it."""
    return f"{g.method} ({label})" if label else g.method


def leading(groups: Sequence[Group], most: int = MOST) -> list[Group]:
    """At most so many groups in their order: the best of every method, then the most accurate."""
    ranked = sorted(groups, key=lambda g: -(s.mean if (s := g.summary("accuracy")) else -1.0))
    best = {g.method: g for g in reversed(ranked)}
    first = [g for g in ranked if best[g.method] is g]
    others = [g for g in ranked if best[g.method] is not g]
    kept = {id(g) for g in [*first, *others][:most]}
    return [g for g in groups if id(g) in kept]


def interval(g: Group, metric: str) -> tuple[float, float] | None:
    """95 % interval of a metric's mean over seeds, m -+ t_{0.975, n-1} s / sqrt(n)."""
    known = [v for run in g.numbers(g.readout) if (v := run[metric]) is not None]
    if len(known) < FEWEST:
        return None
    _, low, high = paired_difference(known, [0.0] * len(known))
    return low, high


@dataclass(frozen=True)
class Difference:
    """Accuracy of `first` less that of `second` over their common seeds, in percent points.

    mean, low and high are None where fewer than three seeds are common.
    """

    first: Group
    second: Group
    seeds: tuple[int, ...]
    mean: float | None = None
    low: float = 0.0
    high: float = 0.0

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.mean is not None and not self.low <= 0 <= self.high


def difference(first: Group, second: Group) -> Difference:
    """Each with the read-out that its runs report."""
    ours, theirs = _accuracies(first), _accuracies(second)
    seeds = tuple(
        seed
        for seed in ours
        if seed in theirs
        and ours[seed][0] == theirs[seed][0]  # the same data, cut into the same tasks
    )
    if len(seeds) < FEWEST:
        return Difference(first, second, seeds)
    a, b = ([side[seed][1] for seed in seeds] for side in (ours, theirs))
    return Difference(first, second, seeds, *paired_difference(a, b))


def differences(groups: Sequence[Group]) -> list[Difference]:
    """Of all pairs with the same data, split and memory among the leading groups of each."""
    places = dict.fromkeys((g.data, g.split, g.memory) for g in groups)
    return [
        difference(a, b)
        for place in places
        for a, b in combinations(
            leading([g for g in groups if (g.data, g.split, g.memory) == place]), 2
        )
    ]


def differences_table(found: Sequence[Difference], names: dict[int, str]) -> Table:
    """A row a pair; strong where the interval leaves out 0. `names` by the id of a group."""
    rows: list[list[Cell]] = []
    for d in found:
        size = NOTHING if d.first.memory is None else str(d.first.memory)
        pair: list[Cell] = [names[id(d.first)], names[id(d.second)], size]
        seeds = text.number_ranges(d.seeds) or "none"
        if d.mean is None:
            rows.append([*pair, NOTHING, f"fewer than {FEWEST} common seeds", seeds])
        else:
            shown = f"{d.mean:+.2f}"
            wide = f"{d.low:+.2f} to {d.high:+.2f}"
            rows.append([*pair, Strong(shown) if d.clear else shown, wide, seeds])
    columns = ("method", "less", "memory", "difference", "95 % interval", "seeds")
    return Table(columns, rows, ("method", "less"))


def differences_numbers(found: Sequence[Difference], names: dict[int, str]) -> Table:
    """For programs: every number in full; empty where fewer than three seeds are common."""
    rows: list[list[Cell]] = []
    for d in found:
        ends = [None, None, None] if d.mean is None else [d.mean, d.low, d.high]
        pair = [names[id(d.first)], names[id(d.second)], d.first.memory]
        rows.append([*pair, *ends, text.number_ranges(d.seeds)])
    return Table(("first", "second", "memory", "difference", "low", "high", "seeds"), rows)


def _accuracies(g: Group) -> dict[int, tuple[object, float]]:
    """seed -> (what must be the same in a pair, accuracy)."""
    runs = zip(g.records, g.numbers(g.readout), strict=True)
    return {
        record["seed"]: ((record.get("data_fingerprint"), record["tasks"]), accuracy)
        for record, numbers in runs
        if (accuracy := numbers["accuracy"]) is not None
    }
