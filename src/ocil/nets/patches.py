"""Whitened random patches: a fixed encoder of images (Coates and Ng 2011; Coates et al. 2011).

Every patch p (S x S pixels, all channels, at every place) is compared with F patches of the first
images of the stream:

    p <- (p - mean(p)) / sqrt(var(p) + 100/255^2)
    r = W Z (p - m),   Z = E diag((l + 0.1)^-1/2) E',  C = E diag(l) E' the patches' covariance
    features: mean of max(r - t, 0) and of max(-r - t, 0) over each of g x g regions, t = 0.25

W are F random whitened patches of unit length, m the mean patch; g is 2, for grey images of 16
pixels and more 3. The features of a colour image are the mean of those of it and of its mirror
image; grey ones are often characters, which have none.
Images above 64 pixels are averaged down to 64. The features are shifted and scaled to mean 0 and
deviation 1 over the images that made the dictionary.

An image is encoded by itself, so its bits do not depend on which others are there: the columns of
patches are normalised first, then one product a region, threshold and mean while it is in cache.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocil.errors import OcilError
from ocil.fields import setting

LARGEST, SMALLEST = 64, 8  # pixels a side
SIDE = 6  # of a patch, less for small images
FEATURES = 2400  # at most, of a width that is not given: with 100 classes 16 MB of statistics
SAMPLED = 60_000  # patches whose mean and covariance whiten
FLAT = 1e-4  # variance of a patch below which it is left out of them
CONTRAST, WHITEN = 100 / 255**2, 0.1


@dataclass(frozen=True)
class PatchSettings:
    """Group `patches` of the settings."""

    size: int | Literal["auto"] = setting("auto", low=2)
    """Pixels along a side of a patch; auto: 6, fewer for images below 20 pixels."""
    pool: int | Literal["auto"] = setting("auto", low=1)
    """Regions along a side over which responses are averaged; auto: 3 for grey images of 16 pixels
    and more, else 2."""
    threshold: float = 0.25
    """What a response must exceed to count."""
    mirror: Literal["auto", "yes", "no"] = "auto"
    """Average the features of an image and its mirror image; auto: of colour images."""


class Patches(nn.Module):
    """Images (n, c, h, w) from 0 to 1 -> (n, 2 g^2 F); all zeros before `fit`."""

    seed: Tensor
    fitted: Tensor
    filters: Tensor
    offset: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(
        self, shape: Sequence[int], width: int = 0, options: PatchSettings | None = None
    ) -> None:
        super().__init__()
        if len(shape) != 3 or min(shape[1:]) < SMALLEST:
            raise OcilError(
                f"The network patches is for images of {SMALLEST} pixels a side and more, and the "
                f"items have shape {tuple(shape)}; take random in its place."
            )
        options = options or PatchSettings()
        channels, *size = shape
        by = max(1.0, max(size) / LARGEST)
        rows, columns = (max(SMALLEST, round(n / by)) for n in size)
        self.size, self.threshold = (rows, columns), options.threshold
        smaller, grey = min(self.size), channels == 1
        self.side = min(SIDE, (smaller + 4) // 4) if options.size == "auto" else options.size
        grid = (3 if grey and smaller >= 16 else 2) if options.pool == "auto" else options.pool
        self.mirror = not grey if options.mirror == "auto" else options.mirror == "yes"
        if (places := max(0, smaller - self.side + 1)) < grid:
            raise OcilError(
                f"Patches of {self.side} pixels have {places} places along a side of {smaller}, "
                f"too few for {grid} regions; lower patches.size or patches.pool."
            )
        self.regions = _regions([n - self.side + 1 for n in self.size], grid)
        width = width or min(FEATURES // (2 * grid**2), 3 * rows * columns)
        numbers = channels * self.side**2
        self.features = 2 * len(self.regions) * width
        self.stage_features = (self.features,)
        self.standard: nn.Module = nn.Identity()
        self.register_buffer("seed", torch.randint(2**62, ()))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.int64))  # images
        self.register_buffer("filters", torch.zeros(width, numbers))  # W Z
        self.register_buffer("offset", torch.zeros(width, 1))  # -W Z m
        self.register_buffer("shift", torch.zeros(self.features))
        self.register_buffer("scale", torch.ones(self.features))

    # ---------------------------------------------------------------- dictionary

    @torch.no_grad()
    def fit(self, x: Tensor) -> None:
        """Make the dictionary from images x (n, c, h, w); equal ones make equal bits."""
        draw = torch.Generator().manual_seed((int(self.seed) + len(x)) % 2**63)
        patches = self._sample(self._prepared(x), draw)  # (N, numbers)
        mean, values, vectors = _principal(patches)
        whiten = (vectors / (values + WHITEN).sqrt()) @ vectors.T  # Z
        chosen = patches[torch.randint(len(patches), (len(self.filters),), generator=draw)]
        w = (chosen.double() - mean) @ whiten
        none = torch.randn(w.shape, generator=draw).to(w)  # where all patches are alike
        w = F.normalize(torch.where(w.norm(dim=1, keepdim=True) > 1e-6, w, none), dim=1)
        self.filters.copy_(w @ whiten)
        self.offset.copy_(-(w @ whiten @ mean)[:, None])
        self.shift.zero_()
        self.scale.fill_(1.0)
        found = self.forward(x).double()
        variance = found.var(0, correction=0)
        self.shift.copy_(found.mean(0))
        self.scale.copy_((variance + 0.01 * variance.mean() + 1e-6).rsqrt())
        self.fitted.fill_(len(x))

    def _sample(self, x: Tensor, draw: torch.Generator) -> Tensor:
        """Random patches (N, numbers) that are not flat, normalised."""
        windows = x.unfold(2, self.side, 1).unfold(3, self.side, 1)  # (n, c, rows, columns, S, S)
        n, _, rows, columns = windows.shape[:4]
        count = min(SAMPLED, n * rows * columns)
        i, r, q = (torch.randint(top, (count,), generator=draw) for top in (n, rows, columns))
        found = windows[i, :, r, q].flatten(1)
        lively = found[found.var(1, correction=0) > FLAT]
        return _normalised((lively if len(lively) else found).T.contiguous()).T

    # ---------------------------------------------------------------- encoding

    def _prepared(self, x: Tensor) -> Tensor:
        x = self.standard(x)
        return x if tuple(x.shape[2:]) == self.size else F.adaptive_avg_pool2d(x, self.size)

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """The one stage there is, (n, features)."""
        return [self.forward(x)]

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, features)."""
        found = x.new_empty(len(x), self.features)
        for i in range(len(x)):
            image = self._prepared(x[i : i + 1])
            pooled = self._pooled(image)
            if self.mirror:
                pooled = (pooled + self._pooled(image.flip(3))) / 2
            found[i] = pooled
        return (found - self.shift) * self.scale

    def _pooled(self, image: Tensor) -> Tensor:
        """One image (1, c, h, w) -> (features,)."""
        windows = image[0].unfold(1, self.side, 1).unfold(2, self.side, 1)
        windows = windows.permute(0, 3, 4, 1, 2)  # (c, S, S, rows, columns)
        found = []
        for rows, columns in self.regions:
            patches = _normalised(windows[..., rows, columns].reshape(self.filters.shape[1], -1))
            r = torch.addmm(self.offset, self.filters, patches)  # (F, places)
            r = F.softshrink(r, self.threshold)
            signed, size = r.mean(1), r.abs_().mean(1)
            found += [(size + signed) / 2, (size - signed) / 2]
        return torch.cat(found)


def _normalised(columns: Tensor) -> Tensor:
    """Patches (numbers, places), each less its mean and by its deviation; in place."""
    columns -= columns.mean(0)
    return columns.mul_((columns.square().mean(0) + CONTRAST).rsqrt_())


def _principal(patches: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, and eigenvalues and vectors of the covariance, of patches (N, numbers); float64."""
    rows = patches.double()
    mean = rows.mean(0)
    rows = rows - mean
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    return mean, values.clamp(min=0), vectors


def _regions(size: Sequence[int], grid: int) -> list[tuple[slice, slice]]:
    """The grid x grid regions of a map of this size."""
    edges = [[math.floor(n * i / grid) for i in range(grid + 1)] for n in size]
    rows, columns = ([slice(a, b) for a, b in itertools.pairwise(each)] for each in edges)
    return list(itertools.product(rows, columns))
