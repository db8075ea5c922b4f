"""Learning speed: which images of a class were learned first, which last."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def learning_speed(hits: torch.Tensor, tries: torch.Tensor) -> torch.Tensor:
    """Share of the looks at an image that named it rightly, with one hit and one miss added.

    s = (h + 1) / (n + 2): few looks give a speed near 1/2. hits (m,), tries (m,) -> (m,)
    """
    return (hits + 1) / (tries + 2)


def tails(speeds: Sequence[float], ties: Sequence[float], quick: float, slow: float) -> list[int]:
    """Positions of the share `slow` with the lowest and `quick` with the highest speeds.

    Shares of n are rounded down, and of equal speeds the one with the larger tie is faster.

    >>> tails([0.5, 0.9, 0.2, 0.6, 0.4], ties=[0.0] * 5, quick=0.2, slow=0.4)
    [2, 4, 1]
    """
    n = len(speeds)
    order = sorted(range(n), key=lambda i: (speeds[i], ties[i]))
    lowest = int(n * slow + 1e-9)  # 100 * 0.29 falls short of 29
    highest = min(int(n * quick + 1e-9), n - lowest)
    return order[:lowest] + order[n - highest :]
