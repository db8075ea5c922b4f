"""How much the net's word counts beside the anchor's: a log-linear pool (Genest and Zidek 1986).

    fused(x) = t a(x) + w n(x),   a the anchor's scores, n log-probabilities by what was learned

The temperature t comes with the anchor's shrinkage, from leave-one-out scores of the memory's
images. The weight w comes from samples at their arrival, scored by both before either has learned
them: the w of a grid with the least log-loss among the classes of the batch (among all, the net's
preference for what came last would look like knowledge), drawn to a quarter while they are few.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ocil.learners.parts import Values

GRID = (0.0625, 0.125, 0.25, 0.5, 1.0)  # of w
START = 0.25
STRENGTH = 2.0  # nats against a factor of two from the start
EVERY = 200  # samples from one look to the next


class Pool(Values):
    """Log-losses (G,) of arrived samples under each weight."""

    saved: ClassVar[tuple[str, ...]] = ("losses", "looks")

    def __init__(self, device: torch.device) -> None:
        self.losses = torch.zeros(len(GRID), dtype=torch.float64, device=device)
        self.looks = 0  # samples that were looked at

    def watch(self, anchor: Tensor, net: Tensor, y: Tensor) -> None:
        """Scores (n, C) of both for samples of classes y (n,) that neither has learned."""
        here, own = y.unique(return_inverse=True)
        if len(here) < 2:
            return
        a, n = anchor[:, here].double(), net[:, here].double()
        for i, w in enumerate(GRID):
            said = (a + w * n).log_softmax(1).gather(1, own[:, None])
            self.losses[i] -= said.clamp(min=-20).sum()
        self.looks += len(y)

    @property
    def weight(self) -> float:
        away = torch.tensor(GRID, dtype=torch.float64).div(START).log2().square()
        return GRID[int((self.losses.cpu() + STRENGTH * away).argmin())]

    def check(self, classes: int) -> None:
        if self.losses.shape != (len(GRID),) or not bool(self.losses.isfinite().all()):
            raise ValueError("the pool of the anchor has other weights")
