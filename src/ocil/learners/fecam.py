"""FeCAM: Mahalanobis distances in a fixed space (Goswami et al., NeurIPS 2023, arXiv 2309.14062).

    score_c(x) = -(h(x) - mu_c)' N(Sigma_c)^-1 (h(x) - mu_c)
    Sigma_c = S_c + V1 I + V2 (1 - I),   N(A)_ij = A_ij / sqrt(A_ii A_jj)

S_c is the covariance of class c, V1 the mean of its variances and V2 that of its other entries: the
paper's shrinkage with both weights 1. N makes distances to classes of different spread comparable.
Up to 256 features each class has its own covariance, above that all share the one within classes
(the paper's "common covariance"), since C d^2 numbers are more than the stream has to say.

| symbol | here             | meaning                              |
|--------|------------------|--------------------------------------|
| h      | model.net        | the encoder, fixed after 300 samples |
| mu     | means            | exact class means (C, d)             |
| S      | scatters, counts | covariance of each class, or of all  |

Differs from the reference code: features have both signs, so there is no Tukey transform, and they
are not brought to unit length.

Cost: no gradient, no memory; d^2 numbers a class up to 256 features, else d^2 in all. A prediction
factors one matrix a class.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.learners.anchor import at_means
from ocil.learners.fixed import FixedLearner, FixedSettings, plain
from ocil.learners.parts import Values
from ocil.learners.readouts import Readout
from ocil.moments import ClassMoments
from ocil.moments.novelty import novelty

MOST = 256  # features up to which each class has its own covariance


def normalised(s: Tensor) -> Tensor:
    """N(S + V1 I + V2 (1 - I)) of covariances (..., d, d); the identity where S is zero."""
    d = s.shape[-1]
    eye = torch.eye(d, dtype=s.dtype, device=s.device)
    variances = s.diagonal(dim1=-2, dim2=-1)
    v1 = variances.mean(-1)[..., None, None]
    v2 = (s.sum((-2, -1)) - variances.sum(-1))[..., None, None] / max(1, d * (d - 1))
    shrunk = torch.where(v1 > 1e-12, s + v1 * eye + v2 * (1 - eye), eye)
    scale = shrunk.diagonal(dim1=-2, dim2=-1).rsqrt()
    return shrunk * scale[..., None] * scale[..., None, :] + 1e-6 * eye


class SharedMoments(ClassMoments):
    """One covariance for all; -(x - mu)' A (x - mu) is linear in x but for a term of x alone."""

    def regularised(self, s: Tensor, n: int) -> Tensor:
        return normalised(s)


class ClassScatters(Values):
    """Count, mean and scatter sum (x - mu)(x - mu)' of every class."""

    saved: ClassVar[tuple[str, ...]] = ("counts", "means", "scatters")
    by_class: ClassVar[tuple[str, ...]] = ("counts", "means", "scatters")

    def __init__(self, dim: int, device: torch.device) -> None:
        self.dim, self.device = dim, device
        self.reset()

    def reset(self) -> None:
        double = {"dtype": torch.float64, "device": self.device}
        self.counts = torch.zeros(0, **double)
        self.means = torch.zeros(0, self.dim, **double)
        self.scatters = torch.zeros(0, self.dim, self.dim, device=self.device)

    def add(self, z: Tensor, y: Tensor) -> None:
        """Count z (n, d) of classes y (n,), one by one: S_c += (x - mu_c)(x - mu_c')' (Welford)."""
        self._grow(int(y.max()) + 1)
        for row, c in zip(z.double(), y.tolist(), strict=True):
            self.counts[c] += 1
            before = row - self.means[c]
            self.means[c] += before / self.counts[c]
            self.scatters[c] += torch.outer(before, row - self.means[c]).float()

    def _grow(self, classes: int) -> None:
        more = max(0, classes - len(self.counts))
        self.counts = F.pad(self.counts, (0, more))
        self.means = F.pad(self.means, (0, 0, 0, more))
        self.scatters = F.pad(self.scatters, (0, 0, 0, 0, 0, more))

    def merge(self, other: ClassScatters, ids: Tensor) -> None:
        """Count what another has counted; its class c is our k = ids[c] (Chan et al. 1979).

        S_k += S_c + n_k n_c / (n_k + n_c) (mu_c - mu_k)(mu_c - mu_k)'
        """
        self._grow(int(ids.max()) + 1)
        for c, k in enumerate(ids.tolist()):
            n, m = self.counts[k], other.counts[c]
            share = m / (n + m).clamp(min=1)
            by = other.means[c] - self.means[k]
            self.scatters[k] += other.scatters[c] + (n * share * torch.outer(by, by)).float()
            self.means[k] += share * by
            self.counts[k] += m

    def remove(self, z: Tensor, y: Tensor) -> None:
        """Take back z (n, d) of classes y (n,), the steps of `add` in the other direction."""
        for row, c in zip(z.double(), y.tolist(), strict=True):
            self.counts[c] -= 1
            after = row - self.means[c]
            self.means[c] -= after / self.counts[c].clamp(min=1)
            self.scatters[c] -= torch.outer(row - self.means[c], after).float()

    def scores(self, z: Tensor) -> Tensor:
        """(n, d) -> (n, C)."""
        found = []
        for count, mean, scatter in zip(self.counts, self.means, self.scatters, strict=True):
            factor = torch.linalg.cholesky(normalised(scatter.double() / count.clamp(min=1)))
            apart = torch.linalg.solve_triangular(factor, (z.double() - mean).T, upper=False)
            found.append(-apart.square().sum(0))
        return torch.stack(found, 1).float()

    def check(self, classes: int) -> None:
        shapes = {"counts": (classes,), "means": (classes, self.dim)}
        shapes["scatters"] = (classes, self.dim, self.dim)
        for name, shape in shapes.items():
            value = getattr(self, name)
            if tuple(value.shape) != shape or not bool(value.isfinite().all()):
                raise ValueError(f"{name} are not those of {classes} classes")


class Fecam(FixedLearner[FixedSettings]):
    method = "fecam"
    title = "Mahalanobis distances with class covariances"
    paper = "Goswami et al., FeCAM: Exploiting the Heterogeneity of Class Distributions"
    year = 2023
    own_readout = "distance"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        many = self.dim > MOST
        self.statistics = (
            SharedMoments(self.dim, self.device, keeps=False)
            if many
            else ClassScatters(self.dim, self.device)
        )
        self.parts["fecam"] = self.statistics
        self.readout = self.choose_readout()

    def restart(self) -> None:
        self.statistics.reset()

    def count(self, z: Tensor, y: Tensor) -> None:
        self.statistics.add(z, y)

    def uncount(self, z: Tensor, y: Tensor) -> None:
        self.statistics.remove(z, y)

    def readouts(self) -> dict[str, Readout]:
        found = self.statistics
        foreign = partial(novelty, found) if isinstance(found, SharedMoments) else None
        return {"distance": plain(found.scores, lambda: at_means(found.means), novelty=foreign)}
