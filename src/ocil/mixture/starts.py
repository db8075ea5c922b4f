"""How a class's components start, and when they start again: pure functions over [classes, Q, d].

A fresh clustering of the queue is accepted when the class has none yet or the queue is still
filling; afterwards it must beat the present mixture. Both are judged as k-means clusterings of
the same points (the present one after Lloyd rounds of its own), so only a difference of
structure counts: a mode without a component, a mode with two.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.mixture import seeding
from ocil.mixture.moments import (
    component_log_density,
    floor_of,
    regularise,
    weighted_moments,
    window_points,
)
from ocil.mixture.settings import MixtureSettings


def queue_space(z: Tensor, mask: Tensor, settings: MixtureSettings) -> Tensor:
    """Gram matrix (B, Q, Q) of the queue, reduced to K principal axes for `spectral`."""
    kernel = seeding.gram(z, mask)
    if settings.seeding != "spectral" or settings.components >= min(z.shape[1:]):
        return kernel
    scores = seeding.principal_scores(kernel, settings.components)
    return scores @ scores.mT


def challenge(
    z: Tensor,
    mask: Tensor,
    mixture: tuple[Tensor, Tensor, Tensor],
    noise: Tensor,
    settings: MixtureSettings,
) -> tuple[Tensor, Tensor]:
    """Clusters (B, K, Q) of the queues, and whether they are clearly better (B,) than `mixture`.

    Clearly: the scatter within clusters is lower by the share `reseed_margin`, or lower at all if
    a component has died (weight under 1 / (8 K)). noise (B, restarts, K, Q) is Gumbel.
    """
    mu, var, log_pi = mixture
    space = queue_space(z, mask, settings)
    found = seeding.partition(space, mask, noise, spread=settings.seeding != "random")
    scores = component_log_density(window_points(z, mask, mu.mean(1, keepdim=True)), mu, var)
    nearest = (scores + log_pi.unsqueeze(-1)).argmax(1, keepdim=True)
    present = torch.zeros_like(found).scatter_(1, nearest, 1.0) * mask.unsqueeze(1)
    present = seeding.lloyd(space, mask, present)
    dead = log_pi.amin(-1).exp() < 1 / (8 * settings.components)
    keep = torch.where(dead, 1.0, 1.0 - settings.reseed_margin)
    old, new = seeding.scatter_within(space, present), seeding.scatter_within(space, found)
    return found, new < keep * old


def from_clusters(
    z: Tensor,
    mask: Tensor,
    settled: Tensor,
    resp: Tensor,
    base: Tensor,
    settings: MixtureSettings,
) -> dict[str, Tensor]:
    """Parameters, responsibilities and old moments for the clusters resp (B, K, Q) of the queues.

    An empty cluster gets weight zero while the class is young (resp uses component 0 only), and
    otherwise half a pseudo-point at the centre of the class. The old moments are those of the
    `settled` points, the ones before the window; for the stepwise average those of all, as shares.
    """
    weight = mask.unsqueeze(-1).to(z.dtype)
    centre = (z * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
    points = window_points(z, mask, centre)
    found = weighted_moments(resp, points)
    var, pooled = regularise(found, base, settings.prior, settings.floor)
    young = mask.sum(-1, keepdim=True) < settings.seed_points
    log_pi = torch.log_softmax(torch.where(young, found.mass, found.mass + 0.5).log(), -1)
    new = {"mu": found.mean, "var": var, "log_pi": log_pi, "resp": resp.mT}
    new["least"] = floor_of(pooled, settings.floor).flatten()
    old = found._replace(mass=found.mass / found.mass.sum(-1, keepdim=True))
    if settings.average == "window":
        old = weighted_moments(resp * settled.unsqueeze(1), points)
    return new | {"old_mass": old.mass, "old_mean": old.mean, "old_var": old.var}
