"""Intervals of groups of runs, paired differences between them, and who leads.

Runs are paired by their seed, which fixes class order, tasks and the images of each task: what
differs within a pair is the method, so its difference varies less than either accuracy.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ocil import text
from ocil.report.groups import Group
from ocil.report.render import NOTHING, Cell, Strong, Table
from ocil.report.runs import Run
from ocil.run.metrics import paired_difference

MIN_RUNS = 3  # runs; with two, the factor of the interval is 12.7
MAX_GROUPS = 16  # groups that are compared with each other
TOLD = 4  # methods whose forgetting is told in words
# Settings that stand beside a name: in a column, or in the stream that groups share.
_BESIDE = ("readout", "updates", "limit_per_class", "epochs", "fingerprint", "tasks", "augment")
KNOWN = frozenset(_BESIDE)


def leading(groups: Sequence[Group], most: int = MAX_GROUPS) -> list[Group]:
    """At most so many groups in their order: the best of every method, then the most accurate."""
    ranked = sorted(groups, key=_accuracy, reverse=True)
    best = {g.method: g for g in reversed(ranked)}
    kept = sorted(ranked, key=lambda g: best[g.method] is not g)[:most]
    return [g for g in groups if g in kept]


def interval(g: Group, metric: str) -> tuple[float, float] | None:
    """95 % interval of a metric's mean over seeds, m -+ t_{0.975, n-1} s / sqrt(n)."""
    known = g.values(metric)
    if len(known) < MIN_RUNS:
        return None
    _, low, high = paired_difference(known, [0.0] * len(known))
    return low, high


def between(g: Group, metric: str) -> str:
    """The interval in words."""
    ends = interval(g, metric)
    return f"{ends[0]:.2f} to {ends[1]:.2f}" if ends else NOTHING


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
    # the same data, cut into the same tasks
    seeds = tuple(s for s in ours if s in theirs and ours[s][0] == theirs[s][0])
    if len(seeds) < MIN_RUNS:
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
            rows.append([*pair, NOTHING, f"fewer than {MIN_RUNS} common seeds", seeds])
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
    return {
        run.seed: ((run.record.get("data_fingerprint"), run.tasks), accuracy)
        for run in g.runs
        if (accuracy := run.value("accuracy")) is not None
    }


def findings(runs: Sequence[Run], places: Sequence[Sequence[Group]]) -> Iterator[str]:
    """What there is, and for every data set who leads by how much."""
    tuned = sum(run.split == "validation" for run in runs)
    methods, data = len({run.method for run in runs}), len({run.data for run in runs})
    trials = f"; {tuned:,} of them are trials on held-out images, by which settings were chosen"
    there = f"Methods: {methods}, data sets: {data}, runs: {len(runs):,}"
    yield f"{there}{trials if tuned else ''}."
    for members in places:
        if told := finding(members):
            yield f"{text.plain(members[0].data, 60)}: {told}."


def finding(groups: Sequence[Group]) -> str:
    """Who leads where most runs are comparable, and who elsewhere; empty where nobody competes."""
    blocks = {where: block for where, block in alike(groups).items() if lead(block, where)}
    if not blocks:
        return ""
    main = main_block(blocks)
    others = Counter(leader(block).method for where, block in blocks.items() if where != main)
    more = [f"{text.plain(method, 60)} ({count})" for method, count in others.most_common()]
    told = f"; with other streams and memories the leader is {', '.join(more)}" if more else ""
    return lead(blocks[main], main) + told


def main_block(blocks: Mapping[str, Sequence[Group]]) -> str:
    """Where most runs can be compared."""
    return max(blocks, key=lambda where: sum(len(g.runs) for g in blocks[where]))


def not_run(groups: Sequence[Group], block: Sequence[Group]) -> str:
    """Methods run on the data set that a block lacks, and those with fewer seeds than others."""
    few = {g.method: len(g.runs) for g in one_each(block)}
    groups = [g for g in groups if g.settings.get("order") != "joint"]  # `further` tells of these
    most = max(few.values())
    short = [f"{text.plain(m, 60)} ({n} of {most})" for m, n in sorted(few.items()) if n < most]
    absent = [text.plain(m, 60) for m in sorted({g.method for g in groups} - few.keys())]
    parts = [f"Not run there: {', '.join(absent)}."] if absent else []
    return " ".join([*parts, *([f"With fewer seeds: {', '.join(short)}."] if short else [])])


def further(groups: Sequence[Group], block: Sequence[Group]) -> str:
    """What the best of a ranked block forget, and what learning all classes at once reaches."""
    rivals = [g for g in one_each(block) if g.settings.get("order") != "joint"][:TOLD]
    lost = [(g.method, found.mean) for g in rivals if (found := g.summary("forgetting"))]
    joint = [g for g in groups if g.settings.get("order") == "joint" and g.summary("accuracy")]
    words = ", ".join(f"{text.plain(method, 60)} {mean:.2f}" for method, mean in lost)
    parts = [f"Forgotten, in percent points: {words}."] if lost else []
    if joint:
        best = max(joint, key=_accuracy)
        told = f"{text.plain(best.method, 60)} {_accuracy(best):.2f} %"
        parts.append(f"Learning all classes at once: {told}.")
    return " ".join(parts)


def alike(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Groups that learn the same stream with the same memory, best first; the whole stream, one
    epoch and small memories come first, runs without a memory last."""
    found: dict[tuple[Any, ...], list[Group]] = {}
    several = len({text.setting(g.settings.get("augment")) for g in groups}) > 1
    for g in groups:
        limit, epochs = (_whole(g.settings.get(key)) for key in ("limit_per_class", "epochs"))
        augment = text.setting(g.settings.get("augment")) if several else ""
        size = (g.memory is None, g.memory or 0)
        place = (limit > 0, limit, epochs or 1, augment == "none", augment, *size)
        found.setdefault(place, []).append(g)
    ranked = {place: sorted(found[place], key=_accuracy, reverse=True) for place in sorted(found)}
    return {_stream(place): members for place, members in ranked.items()}


def _whole(value: Any) -> int:
    return value if type(value) is int else 0


def _stream(place: tuple[Any, ...]) -> str:
    _, limit, epochs, _, augment, without, size = place
    parts = [f"{limit} images a class" if limit else "whole stream"]
    parts += [f"{epochs} epochs"] * (epochs != 1) + [f"augment {augment}"] * bool(augment)
    return ", ".join([*parts, "no memory" if without else f"memory {size}"])


def one_each(block: Sequence[Group]) -> list[Group]:
    """Of every method the group with the most runs, then the best: what ablations and single runs
    came to by chance does not speak for a method. In the order of the block, best first."""
    known = [g for g in block if g.summary("accuracy")]
    best: dict[str, Group] = {}
    for g in known:
        if g.method not in best or len(g.runs) > len(best[g.method].runs):
            best[g.method] = g
    return [g for g in known if best[g.method] is g]


def leader(block: Sequence[Group]) -> Group:
    """The best method of a ranked block; joint learning, the ceiling, does not compete."""
    return next(g for g in one_each(block) if g.settings.get("order") != "joint")


def lead(block: Sequence[Group], where: str) -> str:
    """Who leads among ranked groups, by how much, and how sure that is; empty for one method."""
    rivals = [g for g in one_each(block) if g.settings.get("order") != "joint"]
    if len(rivals) < 2:
        return ""
    first, second = rivals[:2]
    gap = _accuracy(first) - _accuracy(second)
    leads = f"{text.plain(first.method, 60)} leads with {_accuracy(first):.2f} % ({where})"
    sure = _how_sure(difference(first, second))
    return f"{leads}, {gap:.2f} above {text.plain(second.method, 60)} ({sure})"


def _how_sure(d: Difference) -> str:
    if d.mean is None:
        return f"{len(d.seeds)} common seed{'s' * (len(d.seeds) != 1)}, not settled"
    sure = "" if d.clear else ", not settled"
    return f"95 % interval {d.low:+.2f} to {d.high:+.2f} over {len(d.seeds)} seeds{sure}"


def _accuracy(g: Group) -> float:
    summary = g.summary("accuracy")
    return summary.mean if summary else -1.0
