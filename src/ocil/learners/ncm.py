"""NCM: the nearest class mean on a fixed encoder (Mensink et al. 2013; Rebuffi et al. 2017).

    score_c(x) = -|h(x) - mu_c|^2

with the exact mean of all samples of each class: the least that any method on the same features has
to beat. No gradient, no memory, one pass, any order of the classes.

| symbol | here        | meaning                              |
|--------|-------------|--------------------------------------|
| h      | model.net   | the encoder, fixed after 300 samples |
| mu     | sums/counts | exact class means (C, d)             |

Differs from iCaRL's use of the name: means are of all samples, not of those in a memory, and
features are not brought to unit length. Cost: no gradient, no memory; d numbers a class.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.learners.anchor import at_means
from ocil.learners.fixed import FixedLearner, FixedSettings, plain
from ocil.learners.parts import Values
from ocil.learners.readouts import Readout


class Sums(Values):
    """Count and sum of the features of every class."""

    saved: ClassVar[tuple[str, ...]] = ("counts", "sums")
    by_class: ClassVar[tuple[str, ...]] = ("counts", "sums")

    def __init__(self, dim: int, device: torch.device) -> None:
        self.counts = torch.zeros(0, dtype=torch.int64, device=device)
        self.sums = torch.zeros(0, dim, dtype=torch.float64, device=device)

    def grow(self, classes: int) -> None:
        more = classes - len(self.counts)
        self.counts, self.sums = F.pad(self.counts, (0, more)), F.pad(self.sums, (0, 0, 0, more))

    def reset(self) -> None:
        self.sums.zero_()
        self.counts.zero_()

    def add(self, z: Tensor, y: Tensor) -> None:
        """Count features z (n, d) of classes y (n,)."""
        self.grow(max(len(self.counts), int(y.max()) + 1))
        self.sums.index_add_(0, y, z.double())
        self.counts += torch.bincount(y, minlength=len(self.counts))

    def merge(self, other: Sums, ids: Tensor) -> None:
        """Count what another has counted; its class c is our ids[c]."""
        self.grow(max(len(self.counts), int(ids.max()) + 1))
        self.counts.index_add_(0, ids, other.counts)
        self.sums.index_add_(0, ids, other.sums)

    @property
    def means(self) -> Tensor:
        return self.sums / self.counts.clamp(min=1)[:, None]

    def check(self, classes: int) -> None:
        if len(self.counts) != classes or self.sums.shape[:1] != (classes,):
            raise ValueError(f"there is not one mean for each of {classes} classes")
        if not bool(self.sums.isfinite().all()) or bool((self.counts < 0).any()):
            raise ValueError("the class means are made of numbers that they never have")


class Ncm(FixedLearner[FixedSettings]):
    method = "ncm"
    title = "Nearest class mean"
    paper = "Mensink et al., Distance-Based Image Classification: Generalizing to New Classes"
    year = 2013
    own_readout = "nearest"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.sums = self.parts["ncm"] = Sums(self.dim, self.device)
        self.readout = self.choose_readout()

    def grow(self, classes: int) -> None:
        self.sums.grow(classes)

    def restart(self) -> None:
        self.sums.reset()

    def count(self, z: Tensor, y: Tensor) -> None:
        self.sums.add(z, y)

    def uncount(self, z: Tensor, y: Tensor) -> None:
        self.sums.sums.index_add_(0, y, z.double(), alpha=-1)
        self.sums.counts -= torch.bincount(y, minlength=len(self.sums.counts))

    def readouts(self) -> dict[str, Readout]:
        def scores(z: Tensor) -> Tensor:
            return -torch.cdist(z.double(), self.sums.means).square().float()

        return {"nearest": plain(scores, lambda: at_means(self.sums.means))}
