"""Mixtures fitted by batch EM at chosen moments, which stay as they are in between.

The usual way to describe classes by mixtures in continual learning, and the rival of those that
follow the stream: all points of a class at hand are clustered afresh, I_EM E and M steps

    r_ik = pi_k N(z_i; mu_k, sigma_k) / sum_l pi_l N(z_i; mu_l, sigma_l)
    N_k = sum_i r_ik,  mu_k = sum_i r_ik z_i / N_k,  sigma_k^2 = sum_i r_ik (z_i - mu_k)^2 / N_k,
    pi_k = (N_k + 1/2) / sum_l (N_l + 1/2)

are taken (Dempster, Laird and Rubin 1977; `prior` and `floor` of the settings hold the variances),
and whatever the features do next, the parameters do not move until the next fit. Until its first
fit a class is one Gaussian, that of the latest points in its queue.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ocil.mixture import em, seeding, starts
from ocil.mixture.grouping import Group, group_by_class, of_classes
from ocil.mixture.mmot import Mixtures
from ocil.mixture.moments import Moments, floor_of, window_points
from ocil.mixture.sampling import draw_gumbel
from ocil.mixture.settings import MixtureSettings

SEEDED_FROM = 256  # points of a class that are clustered to start from: clustering is quadratic


class Fit(NamedTuple):
    """Mixtures of B classes."""

    mu: Tensor  # (B, K, d)
    var: Tensor  # (B, K, d)
    log_pi: Tensor  # (B, K)
    least: Tensor  # (B,), what no variance may fall below
    pooled: Tensor  # (d,), variance within components, mean over the classes


def fit_batch_em(
    z: Tensor, mask: Tensor, base: Tensor, generator: torch.Generator, s: MixtureSettings
) -> Fit:
    """`passes` steps of EM for B classes at once from their points z (B, n, d), mask (B, n).

    The first points of a class are the ones it starts from, so give them in random order. A class
    with fewer than `seed_points` is one Gaussian. base (d,) is the prior of the pooled variance.
    """
    some, seen = z[:, :SEEDED_FROM], mask[:, :SEEDED_FROM]
    noise = draw_gumbel((len(z), s.restarts, s.components, some.shape[1]), generator, z)
    space = starts.queue_space(some, seen, s)
    resp = seeding.partition(space, seen, noise, spread=s.seeding != "random")
    few = (mask.sum(-1) < s.seed_points).view(-1, 1, 1)
    first = torch.zeros_like(resp)
    first[:, 0] = seen
    start = starts.from_clusters(some, seen, seen, torch.where(few, first, resp), base, s)
    mixture = (start["mu"], start["var"], start["log_pi"])
    nothing = Moments(*(torch.zeros_like(part) for part in (mixture[2], *mixture[:2])))
    points = window_points(z, mask, mixture[0].mean(1, keepdim=True))
    step = em.window_step(points, mixture, nothing, None, base, s)
    found = (step.mu, step.var, step.log_pi.unsqueeze(-1))
    before = (*mixture[:2], mixture[2].unsqueeze(-1))
    mu, var, log_pi = (torch.where(few, a, b) for a, b in zip(before, found, strict=True))
    least = torch.where(few.flatten(), start["least"], floor_of(step.pooled, s.floor).flatten())
    return Fit(mu, var, log_pi.squeeze(-1), least, step.pooled.mean((0, 1)))


class FittedMixtures(Mixtures):
    """`update` moves the stand-ins of classes without a fit; `fit` makes or remakes the fits."""

    def _add_columns(self) -> None:
        self.store.add("fitted", (), host=True)  # times a class was fitted
        self._windowed = False

    @property
    def fitted(self) -> Tensor:
        """How often each class was fitted, (C,) on the CPU."""
        return self.store["fitted"]

    @torch.no_grad()
    def fit(self, z: Tensor, y: Tensor, generator: torch.Generator) -> None:
        """Batch EM for the classes in y (n,) from their points z (n, d), and no others."""
        if not len(y):
            return
        z, y = self._checked(z), y.cpu()
        mixed = torch.randperm(len(y), generator=generator)
        group = group_by_class(y[mixed].numpy())
        self.store.grow(int(group.classes[-1]) + 1)
        padded, mask = self._padded(z[mixed.to(z.device)], group)
        found = fit_batch_em(padded, mask, self.base, generator, self.settings)
        rows = self._device(group.classes)
        names = ("mu", "var", "log_pi", "least")
        self._put(rows, {name: getattr(found, name) for name in names})
        self.base.copy_(found.pooled)
        self.store.host("fitted")[group.classes] += 1

    def _padded(self, z: Tensor, group: Group) -> tuple[Tensor, Tensor]:
        """Points z (n, d) by class, (B, most, d), and which of the places are taken (B, most)."""
        sizes = torch.from_numpy(group.sizes)
        places = torch.arange(int(sizes.max()))
        mask = (places < sizes.unsqueeze(1)).to(z.device)
        padded = z.new_zeros(*mask.shape, self.dim)
        padded[mask] = z[self._device(group.order)]
        return padded, mask

    def _round(self, z: Tensor, group: Group, generator: torch.Generator) -> None:
        """Points of classes without a fit move their Gaussian; those of others say nothing."""
        self.store.grow(int(group.classes[-1]) + 1)
        group = of_classes(group, self.store.host("fitted")[group.classes] == 0)
        if not len(group.classes):
            return
        self._enqueue(z, group)
        count = self.store.host("count")[group.classes]
        self._single(group.classes, count, count)
        rows = self._device(group.classes)
        alone = torch.full((len(rows), self.settings.components), -torch.inf)
        alone[:, 0] = 0.0
        self.store.put("log_pi", rows, alone.to(self.store["log_pi"]))
