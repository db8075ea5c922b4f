"""When sums that count a sample at a time would choose the shrinkage, and which features they keep.

All that depends on counts alone, so samples may be counted in any order, by several workers, and
the result is that of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ocil.moments.discriminant import ClassMoments, due_after
from ocil.moments.kept import MOST, SPREAD
from ocil.moments.sums import BLOCK

CHUNK = 1 << 24  # numbers looked at together


@dataclass(frozen=True)
class Schedule:
    """What happens to the samples with numbers from `start` to `end`."""

    start: int
    end: int
    choice: int | None = None  # the last choice of the shrinkage is made after so many samples
    entered: int = 0  # samples that have entered the second moment in the end; later ones wait
    share: float = 2.0**32  # of what is kept in the end
    choice_share: float = 2.0**32  # and at the choice

    def kept(self, at: np.ndarray) -> np.ndarray:
        """Which of the samples with these numbers (n,) are kept in the end or at the choice."""
        spread = at * SPREAD % 2**32
        late = (spread < self.share) & (at < self.entered)
        return late | ((spread < self.choice_share) & (at < (self.choice or 0)))


def schedule(sums: ClassMoments, more: int, memory: bool) -> Schedule:
    """Of sums that are to count so many samples more; `memory`: its images choose."""
    n, chosen, choice = sums.total, int(sums.choice[1]), None
    begin, size, end = n - sums.pending, len(sums.rows), n + more
    while memory and (due := max(n + 1, due_after(chosen))) <= end:
        choice = chosen = n = begin = due  # all that wait enter
        size = _size(begin)
    entered = begin
    while begin + size <= end:
        begin = entered = begin + size
        size = _size(begin)
        if sums.keeps and begin >= due_after(chosen):
            choice = chosen = begin
    if not sums.keeps:
        return Schedule(sums.total, end, choice, entered)
    early = _share(sums, choice) if choice else 0.0
    return Schedule(sums.total, end, choice, entered, _share(sums, entered), early)


def _size(n: int) -> int:
    return max(1, min(n // 20, BLOCK))


def _share(sums: ClassMoments, end: int) -> float:
    """The share of 2^32 at which at most MOST of the samples up to `end` are kept."""
    share, first = float(sums.choice[2]), sums.total - sums.pending
    numbers = [sums.kept.kept_at.cpu().numpy().astype(np.uint64)]
    for start in range(first, end, CHUNK):
        numbers.append(np.arange(start, min(start + CHUNK, end), dtype=np.uint64))
    spread = [each * np.uint64(SPREAD) % np.uint64(2**32) for each in numbers]
    while sum(int((each < share).sum()) for each in spread) > MOST:
        share /= 2
        spread = [each[each < share] for each in spread]
    return share
