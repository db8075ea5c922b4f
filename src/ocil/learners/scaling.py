"""Shift and scale of a trained network's input, fixed by the first samples of the stream.

    u = (x - mean) / deviation     of each column of vectors, or each channel of images
    u beyond 5 and -5              goes on as 5 (1 + ln(|u| / 5)): far is far, and never huge

over the first 300 samples, taken up batch by batch; they are not kept, only their exact sums are.
Vectors that all have length one keep their shape, as in `ocil.nets.random_features`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ocil.learners.encoder import STAGES, as_float
from ocil.learners.parts import Values
from ocil.nets.random_features import CLIP, inverse_deviation

FIRST = STAGES[-1]  # samples that decide, as for the fixed encoders


class Scale(Values):
    """Sums over the first samples, and what follows from them."""

    saved = ("seen", "unit", "total", "squares")

    def __init__(self, shape: Sequence[int], device: torch.device) -> None:
        self.form = (shape[0],) + (1,) * (len(shape) - 1)  # in front of items (n, ...)
        self.rows = math.prod(shape[1:])  # of a channel in one sample
        self.seen, self.unit = 0, True  # samples, and whether all have length one
        self.total = torch.zeros(shape[0], dtype=torch.float64, device=device)
        self.squares = torch.zeros_like(self.total)
        self.check(0)

    @torch.no_grad()
    def watch(self, x: Tensor) -> None:
        """Count raw items x (n, ...) while they are among the first."""
        if self.seen >= FIRST:
            return
        items = as_float(x[: FIRST - self.seen]).to(self.total.device)
        rows = items.movedim(1, -1).reshape(-1, len(self.total)).double()
        lengths = items.flatten(1).norm(dim=1)
        self.unit = self.unit and bool(((lengths - 1).abs() < 1e-3).all())
        self.seen += len(items)
        self.total = self.total + rows.sum(0)
        self.squares = self.squares + rows.square().sum(0)
        self.check(0)

    def check(self, classes: int) -> None:
        """Shift and gain by the sums of now."""
        n = max(1, self.seen * self.rows)
        mean = self.total / n
        variance = (self.squares / n - mean.square()).clamp(min=0)
        gain = inverse_deviation(variance)
        if self.unit and len(self.form) == 1:
            mean, gain = torch.zeros_like(mean), torch.full_like(gain, len(gain) ** 0.5)
        self.mean = mean.float().reshape(self.form)
        self.gain = gain.float().reshape(self.form)
        if self.seen < 0 or not bool((self.mean.isfinite() & self.gain.isfinite()).all()):
            raise ValueError("its shift and scale are no numbers")

    def __call__(self, x: Tensor) -> Tensor:
        """Float items (n, ...) -> the same shape; as they are before the first."""
        if not self.seen:
            return x
        u = (x - self.mean) * self.gain
        far = u.abs().clamp(min=CLIP)
        return u.clamp(-CLIP, CLIP) * (1 + (far / CLIP).log())


class Scaled(nn.Module):
    """The scale as a layer of a network, the same one in all copies of it."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.scale(x)

    def __deepcopy__(self, memo: object) -> Scaled:
        return self
