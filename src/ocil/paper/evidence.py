"""Pairs of runs for a comparison, and what they say: a paired difference with its 95 % interval.

Runs are paired that have the seed in common and are equal in everything but what is compared. Where
the right side has several configurations (ER with one and with two gradient steps), its best one on
the common seeds stands for it.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ocil.paper.cells import runs_methods
from ocil.paper.claims import EVERYWHERE, OF_A_SIDE, Comparison, Filter, fits
from ocil.report.runs import Run
from ocil.run.metrics import mean_and_deviation, paired_difference

MIN_PAIRS = 3  # from which a difference can be settled
# What two methods must share to be compared; the rest is each method's own business.
PROTOCOL = ("data", "memory", "split", "limit_per_class", "epochs", "order", "tasks", "batch",
            "net", "width", "precision", "augment", "fingerprint")  # fmt: skip
# They change nothing that is compared: a name for settings, and when to look.
ASIDE = ("seed", "preset", "eval_every", "probe")
# Own-class distance at the end of the stream; of two kinds the first over the second.
INSIDE = {
    "test": ("test", "components"),
    "replayed": ("replayed", "components"),
    "gap": ("test", "replayed", "components"),
    "gap-single": ("test", "replayed", "single"),
}
At = tuple[int | None, int]  # memory (if leads are compared across it) and seed
Side = dict[At, Run]


@dataclass(frozen=True)
class Finding:
    """Differences left - right (of logarithms at scale log) in one setting."""

    comparison: Comparison
    left: Filter
    right: Filter
    settings: Mapping[str, Any]  # what all its runs have in common
    differences: Sequence[float]
    names: frozenset[str]  # of the records, STUDY/JOB, or of a bench's file
    unit: str = "seeds"

    @property
    def interval(self) -> tuple[float, float, float]:
        """Mean and limits; the limits are infinite for a single pair."""
        if len(self.differences) < 2:
            return mean_and_deviation(self.differences)[0], -math.inf, math.inf
        return paired_difference(self.differences, [0.0] * len(self.differences))

    @property
    def verdict(self) -> str:
        """confirmed or refuted where the interval excludes zero, else not settled."""
        _, low, high = self.interval
        if self.comparison.better == "lower":
            low, high = -high, -low
        if len(self.differences) >= MIN_PAIRS and (low > 0 or high < 0):
            return "confirmed" if low > 0 else "refuted"
        return "not settled"


def findings(comparison: Comparison, runs: Sequence[Run]) -> Iterator[Finding]:
    """What the runs say on a comparison: a finding for each setting in which it was made."""
    pool = [run for run in runs if runs_methods(run.study) or not comparison.only_methods]
    for left in comparison.lefts():
        for right in comparison.rights():
            lefts, rights = (_side(comparison, side, pool) for side in (left, right))
            for key in sorted(lefts.keys() & rights.keys()):
                for _, mine in sorted(lefts[key].items()):
                    yield from _compared(comparison, left, right, mine, rights[key])


def _side(comparison: Comparison, side: Filter, runs: Sequence[Run]) -> dict[str, dict[str, Side]]:
    """Setting -> configuration -> runs of a side by memory and seed."""
    chosen = {k: v for k, v in side.items() if k not in OF_A_SIDE}
    wanted = {**EVERYWHERE, **comparison.where, **chosen}
    across = frozenset({comparison.across} - {""})
    found: dict[str, dict[str, Side]] = defaultdict(lambda: defaultdict(dict))
    for run in runs:
        if fits(run.settings, wanted):
            key = _setting(run, comparison)
            at = (run.settings["memory"] if across else None, run.settings["seed"])
            found[key][_configuration(run, across)].setdefault(at, run)
    return found


def _compared(
    comparison: Comparison, left: Filter, right: Filter, mine: Side, rivals: Mapping[str, Side]
) -> Iterator[Finding]:
    """Against the best rival; across memory sizes a finding for each but the smallest."""
    found = [
        (differences, rival)
        for _, rival in sorted(rivals.items())
        if (differences := _differences(comparison, left, right, mine, rival))
    ]
    if not found:
        return
    sign = -1 if comparison.better == "higher" or comparison.across else 1
    # the most pairs first, then the least lead of the left side
    best, theirs = max(found, key=lambda f: (len(f[0]), sign * fmean(f[0].values())))
    for used, values in _parts(best, comparison):
        names = frozenset(side[at].name for at in used for side in (mine, theirs))
        sizes = sorted({at[0] for at in used if at[0] is not None})
        about = mine[used[0]].settings
        about = about | {"memory": " against ".join(map(str, sizes))} if sizes else about
        yield Finding(comparison, left, right, about, values, names)


def _parts(
    differences: Mapping[At, float], comparison: Comparison
) -> Iterator[tuple[list[At], list[float]]]:
    """Pairs and values of each finding; across memory: lead at the smallest minus at another."""
    if not comparison.across:
        yield list(differences), list(differences.values())
        return
    least, *others = sorted({memory for memory, _ in differences if memory is not None})
    for other in others:
        seeds = [s for m, s in differences if m == least and (other, s) in differences]
        if seeds:
            used: list[At] = [(memory, seed) for memory in (least, other) for seed in seeds]
            yield used, [differences[least, s] - differences[other, s] for s in seeds]


def _differences(
    comparison: Comparison, left: Filter, right: Filter, mine: Side, theirs: Side
) -> dict[At, float]:
    """Left minus right wherever both are known, in order of memory and seed."""
    found = {}
    for at in sorted(mine.keys() & theirs.keys(), key=lambda at: (at[0] or 0, at[1])):
        a, b = (
            measure(run, side.get("metric", comparison.metric), side.get("readout"))
            for run, side in ((mine[at], left), (theirs[at], right))
        )
        if a is None or b is None:
            continue
        if comparison.scale == "plain":
            found[at] = a - b
        elif a > 0 and b > 0:
            found[at] = math.log(a) - math.log(b)
    return found


def _setting(run: Run, comparison: Comparison) -> str:
    """Equal for runs that may be compared, whatever they have in what is varied."""
    if not comparison.between_methods:
        return _configuration(run, comparison.varied)
    shared = {k: run.settings.get(k) for k in PROTOCOL if k not in comparison.varied}
    return json.dumps(shared, sort_keys=True)


def _configuration(run: Run, without: frozenset[str]) -> str:
    """Equal for runs that differ by the seed and what is in `without` only."""
    kept = {k: v for k, v in run.settings.items() if k not in {*ASIDE, *without}}
    return json.dumps(kept, sort_keys=True)


def measure(run: Run, metric: str, readout: str | None) -> float | None:
    """A metric of a run, or one of INSIDE: how far test features lie from their class, in units of
    how far the replayed ones do. None where it is not known."""
    if metric not in INSIDE:
        return run.value(metric, readout)
    *kinds, form = INSIDE[metric]
    try:
        distances = run.record["inside"][-1]["own_class_distance"]
        found = [distances[kind][form] for kind in kinds]
        if not all(type(x) in (int, float) and 0 < x < math.inf for x in found):
            return None
    except (KeyError, IndexError, TypeError):
        return None
    value = found[0] / found[1] if len(found) == 2 else found[0]
    return value if 0 < value < math.inf else None
