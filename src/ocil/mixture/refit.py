"""Mixtures fitted by batch EM at chosen moments, which stay as they are in between.

The usual way to describe classes by mixtures in continual learning, and the rival of those that
follow the stream: all points of a class at hand are clustered afresh, I_EM E and M steps

    r_ik = pi_k N(z_i; mu_k, sigma_k) / sum_l pi_l N(z_i; mu_l, sigma_l)
    N_k = sum_i r_ik,  mu_k = sum_i r_ik z_i / N_k,  sigma_k^2 = sum_i r_ik (z_i - mu_k)^2 / N_k,
    pi_k = (N_k + 1/2) / sum_l (N_l + 1/2)

are taken (Dempster, Laird and Rubin 1977; PRIOR and FLOOR of moments.py hold the variances), and
whatever the features do next, the parameters do not move until the next fit. Until its first fit a
class is one Gaussian, that of the latest points in its queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ocil.fields import setting
from ocil.mixture.kmeans import cluster, mixture_of_clusters
from ocil.mixture.moments import Moments, window_points
from ocil.mixture.store import group_by_class
from ocil.mixture.window import window_step

if TYPE_CHECKING:
    from ocil.mixture.mixtures import Mixtures, MixtureSettings

SEEDED_FROM = 256  # points of a class that are clustered to start from: clustering is quadratic


@dataclass(frozen=True)
class EmSettings:
    passes: int = setting(20, low=1, was=("em_passes",))
    """E and M steps of a fit by batch EM (I_EM)."""
    every: int = setting(50, low=1, was=("refit_every",), only={"objective": ("refit-em",)})
    """Batches between two fits."""


def fit_batch_em(
    z: Tensor,
    mask: Tensor,
    pooled_variance: Tensor,
    generator: torch.Generator,
    s: MixtureSettings,
) -> tuple[dict[str, Tensor], Tensor]:
    """Mixtures of B classes at once from their points z (B, n, d), mask (B, n).

    Returns their columns, and the variance within components (d,), mean over the classes. The
    first points of a class are the ones it starts from, so give them in random order. A class
    with fewer than `seed_points` is one Gaussian. pooled_variance (d,) is the prior's.
    """
    some, seen = z[:, :SEEDED_FROM], mask[:, :SEEDED_FROM]
    resp, _ = cluster(some, seen, s.components, s.start.seeding, generator)
    few = mask.sum(-1) < s.seed_points
    first = torch.zeros_like(resp)
    first[:, 0] = seen
    resp = torch.where(few.view(-1, 1, 1), first, resp)
    start, *_ = mixture_of_clusters(some, seen, resp, few, pooled_variance, s.floor)
    mixture = start["mu"], start["var"], start["log_pi"]
    nothing = Moments(*(torch.zeros_like(part) for part in (mixture[2], *mixture[:2])))
    points = window_points(z, mask, mixture[0].mean(1, keepdim=True))
    passes = s.em.passes
    step = window_step(points, mixture, nothing, None, pooled_variance, s.floor, 0, passes)
    found = (*step.mixture, step.variance_floor.flatten())
    fitted = {
        name: torch.where(few.view(-1, *([1] * (value.ndim - 1))), start[name], value)
        for name, value in zip(("mu", "var", "log_pi", "least"), found, strict=True)
    }
    return fitted, step.within.mean((0, 1))


class Refit:
    """Moves mixtures when it is told to; in between, points only move classes without a fit."""

    def __init__(self, mixtures: Mixtures) -> None:
        self.mixtures = mixtures
        mixtures.store.add("fitted", (), host=True)  # times a class was fitted

    @property
    def fitted(self) -> Tensor:
        """How often each class was fitted, (C,) on the CPU."""
        return self.mixtures.store["fitted"]

    def move(self, *_: object) -> None:
        """Nothing moves between two fits."""

    @torch.no_grad()
    def fit(self, z: Tensor, y: Tensor, generator: torch.Generator) -> None:
        """Batch EM for the classes in y (n,) from their points z (n, d), and no others."""
        if not len(y):
            return
        m, (z, y) = self.mixtures, (self.mixtures.checked(z), y.cpu())
        mixed = torch.randperm(len(y), generator=generator)
        group = group_by_class(y[mixed].numpy())
        m.store.grow(int(group.classes[-1]) + 1)
        mask = m.store.to_device(np.arange(group.sizes.max()) < group.sizes[:, None])
        padded = z.new_zeros(*mask.shape, m.dim)
        padded[mask] = z[mixed.to(z.device)][m.store.to_device(group.order)]
        found, within = fit_batch_em(padded, mask, m.pooled_variance, generator, m.settings)
        m.store.put(m.store.to_device(group.classes), found)
        m.pooled_variance.copy_(within)
        m.store.host("fitted")[group.classes] += 1
