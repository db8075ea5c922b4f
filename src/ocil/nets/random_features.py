"""Random features: a fixed encoder of vectors (Rahimi and Recht 2007; McDonnell et al. 2023).

    u = clip((x - mean) / deviation, -5, 5)       over the first items of the stream
    relu:     max(W u + b, 0),  W ~ N(0, 1/d),  b ~ N(0, 1/4)
    fourier:  cos(W u + b),     W ~ N(0, 2/d),  b ~ U(0, 2 pi): the kernel exp(-|u - v|^2 / d)

then shifted and scaled to mean 0 and deviation 1 over those items. Vectors that all have length one
are embeddings whose numbers are comparable: they keep their shape, u = sqrt(d) x. An item is
encoded by itself, so its bits do not depend on which others are there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

CLIP = 5.0


@dataclass(frozen=True)
class RandomSettings:
    """Group `random` of the settings."""

    kind: Literal["relu", "fourier"] = "relu"
    """Random features: relu of random directions, or Fourier's, which stand for a Gaussian
    kernel."""


class RandomFeatures(nn.Module):
    """Items of any shape (n, ...) -> (n, width); W and b are drawn when it is built."""

    fitted: Tensor
    weight: Tensor
    bias: Tensor
    mean: Tensor
    gain: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(
        self, shape: Sequence[int], width: int, options: RandomSettings | None = None
    ) -> None:
        super().__init__()
        self.kind = (options or RandomSettings()).kind
        dim = math.prod(shape)
        self.features = width
        self.stage_features = (width,)
        self.standard: nn.Module = nn.Identity()
        self.register_buffer("fitted", torch.zeros((), dtype=torch.int64))  # items
        weight, bias = torch.randn(width, dim) / dim**0.5, torch.randn(width) / 2
        if self.kind == "fourier":
            weight, bias = weight * 2**0.5, torch.rand(width) * (2 * math.pi)
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("gain", torch.ones(dim))
        self.register_buffer("shift", torch.zeros(width))
        self.register_buffer("scale", torch.ones(width))

    @torch.no_grad()
    def fit(self, x: Tensor) -> None:
        """Fix shifts and scales by items x (n, ...)."""
        rows = self.standard(x).flatten(1).double()
        lengths = rows.norm(dim=1)
        if bool(((lengths - 1).abs() < 1e-3).all()):
            self.mean.zero_()
            self.gain.fill_(rows.shape[1] ** 0.5)
        else:
            self.mean.copy_(rows.mean(0))
            self.gain.copy_(inverse_deviation(rows.var(0, correction=0)))
        self.shift.zero_()
        self.scale.fill_(1.0)
        found = self.forward(x).double()
        self.shift.copy_(found.mean(0))
        self.scale.copy_(inverse_deviation(found.var(0, correction=0)))
        self.fitted.fill_(len(x))

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """The one stage there is, (n, features)."""
        return [self.forward(x)]

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, features)."""
        u = (self.standard(x).flatten(1) - self.mean).mul_(self.gain).clamp_(-CLIP, CLIP)
        found = torch.stack([torch.addmv(self.bias, self.weight, row) for row in u])
        found = found.relu_() if self.kind == "relu" else found.cos_()
        return (found - self.shift).mul_(self.scale)


def inverse_deviation(variance: Tensor) -> Tensor:
    """1 over the deviation of each column (d,); 1 where all values are the same."""
    return torch.where(variance > 1e-12, variance + 0.01 * variance.median(), 1.0).rsqrt()
