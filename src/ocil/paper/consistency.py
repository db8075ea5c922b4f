"""Whether the paper's own tables bear out what it says: the same comparisons, on its numbers.

They are means without the runs behind them, so this asks for the sign of a difference alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ocil.paper.claims import EVERYWHERE, Claim, Comparison, Filter, fits
from ocil.paper.published import Printed, printed

SEVERAL = 2  # passes over each task, for a number of the offline table: it does not say how many


def own_tables(claim: Claim) -> str:
    """In how many cells of the paper's tables a claim holds, and where it does not."""
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
    for mine in lefts:
        for place, number in mine.items():
            rivals = [theirs[place] for theirs in rights if place in theirs]
            better = [_sign(comparison) * (number.value - rival.value) for rival in rivals]
            if comparison.rank and rivals:
                yield _where(number), sum(gap < 0 for gap in better) < comparison.rank
            elif rivals:
                yield from (
                    (f"{_where(number)} ({_told(number, rival)})", gap > 0)
                    for rival, gap in zip(rivals, better, strict=True)
                )


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


def _sign(comparison: Comparison) -> int:
    return 1 if comparison.better == "higher" else -1


def _where(number: Printed) -> str:
    return f"{number.data} {number.memory}"


def _told(number: Printed, rival: Printed) -> str:
    return f"{number.value:g} against {rival.value:g} of {rival.method}"
