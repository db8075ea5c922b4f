"""An even choice of the features of a stream, the same however they came in calls."""

from __future__ import annotations

import torch
from torch import Tensor

MOST = 512  # features kept at most; half of them at least
SPREAD = 2654435761  # 2^32 over the golden ratio: multiples of it are evenly spread modulo 2^32
BACK = pow(SPREAD, -1, 2**32)
DRAWN = 1 << 62  # added to numbers that were drawn, of features that were merged


class Kept:
    """Features (m, d), their classes (m,) and their numbers in the stream (m,)."""

    saved = ("kept", "kept_labels", "kept_at")

    def __init__(self, dim: int, device: torch.device | str = "cpu") -> None:
        self.kept = torch.zeros(0, dim, device=device)
        self.kept_labels = torch.zeros(0, dtype=torch.int64, device=device)
        self.kept_at = self.kept_labels.clone()

    def forget(self, label: int) -> None:
        self._only(self.kept_labels != label)
        self.kept_labels -= (self.kept_labels > label).long()

    def remove(self, rows: Tensor, labels: Tensor) -> None:
        """Let go of those that are among rows (n, d) of classes labels (n,)."""
        left = torch.ones_like(self.kept_labels, dtype=torch.bool)
        for row, label in zip(rows, labels, strict=True):
            apart = (self.kept - row).abs().amax(1).masked_fill(~left, torch.inf)
            apart[self.kept_labels != label] = torch.inf
            if len(apart) and apart.min() <= 1e-5 * (1 + row.abs().max()):
                left[apart.argmin()] = False
        self._only(left)

    def _only(self, few: Tensor) -> None:
        for name in self.saved:
            setattr(self, name, getattr(self, name)[few])

    def add(self, rows: Tensor, labels: Tensor, at: Tensor, share: Tensor) -> None:
        """Offer samples; `share` (0-d) of 2^32 is halved, in place, whenever there are too many."""
        for name, more in zip(self.saved, (rows, labels, at), strict=True):
            setattr(self, name, torch.cat([getattr(self, name), more]))
        while True:
            few = (self.kept_at * SPREAD % 2**32 < share).nonzero()[:, 0]
            if len(few) <= MOST:
                break
            share /= 2
        self._only(few)

    def renumber(self, share: float, seed: int) -> None:
        """Draw numbers for the features that have those of a stream, before a merge.

        Two streams have the same numbers, so the first samples of many short ones would all stay.
        """
        own = (self.kept_at < DRAWN).nonzero()[:, 0]
        draw = torch.Generator().manual_seed(seed)
        spread = torch.rand(len(own), dtype=torch.float64, generator=draw) * share
        drawn = spread.long().to(own.device) * BACK % 2**32 + DRAWN
        self.kept_at = self.kept_at.index_copy(0, own, drawn)
