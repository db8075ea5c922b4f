"""Window steps: stepwise EM, batch EM and Sinkhorn-EM are one update with different plans.

A class's statistics are the moments of its queue under fresh responsibilities, joined with the
moments of older points. Two ways to join them:

- `window`: a point that leaves the queue is added to the old moments with its last
  responsibilities, so every point counts once and recent ones are assigned anew at each update;
  the old mass is capped at `memory` points (incremental EM, Neal and Hinton 1998, with a window);
- `stepwise`: S <- (1 - r_t) S + r_t s, r_t = (t + 2)^-power (Cappe and Moulines 2009).

EM's plan is the posterior; Sinkhorn-EM's is the (relaxed) transport plan to weights pi. Batch EM
is EM with several passes and no older moments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ocil.mixture.moments import (
    Moments,
    Points,
    component_log_density,
    merge,
    regularise,
    weighted_moments,
)
from ocil.mixture.settings import MixtureSettings
from ocil.mixture.transport import responsibilities, uniform_log_weights


def stepwise_em(plain: bool = False, **changes: object) -> MixtureSettings:
    """Settings of stepwise EM: our queue and seeding, or `plain` (batch points, random start)."""
    base = MixtureSettings(objective="em", average="stepwise", relax=0.0)
    if plain:
        base = replace(base, window=0, seeding="random", reseed_every=0, restarts=1)
    return replace(base, **changes)  # type: ignore[arg-type]


def batch_em(**changes: object) -> MixtureSettings:
    """Settings of batch EM refitted on the queue at every update, from the last fit."""
    base = MixtureSettings(objective="batch-em", window=64, memory=0.0, passes=20, relax=0.0)
    return replace(base, **changes)  # type: ignore[arg-type]


def plan(
    points: Points,
    mixture: tuple[Tensor, Tensor, Tensor],
    precision: Tensor,
    log_a: Tensor,
    settings: MixtureSettings,
) -> tuple[Tensor, Tensor]:
    """Responsibilities (B, K, n) and column potentials (B, K) of the window; log_a (B, n)."""
    mu, var, log_pi = mixture
    scores = component_log_density(points, mu, var, precision)
    if settings.objective != "sinkhorn":
        return responsibilities(scores, log_pi, log_a, 0, 0.0)
    steps, relax = settings.sinkhorn_steps, settings.relax
    scores = scores if settings.eps == 1.0 else scores / settings.eps
    return responsibilities(scores, log_pi, log_a, steps, relax)


def weights(mass: Tensor, log_pi: Tensor, g: Tensor, settings: MixtureSettings) -> Tensor:
    """log pi (B, K): the masses with half a pseudo-point each; with relax = 1 by the potential.

    A plan with a fixed column marginal has the masses pi whatever the data say; there
    pi_k <- pi_k exp(-rate g_k), with the exponent limited to 1 per update.
    """
    if settings.objective == "sinkhorn" and settings.relax == 1.0:
        return torch.log_softmax(log_pi - (settings.potential_rate * g).clamp(-1, 1), -1)
    return torch.log_softmax((mass + 0.5).log(), -1)


def cap(old: Moments, memory: float) -> Moments:
    """Old moments with a total mass of at most `memory` points."""
    total = old.mass.sum(-1, keepdim=True)
    return old._replace(mass=old.mass * (memory / total.clamp(min=1e-12)).clamp(max=1))


def stepwise(old: Moments, new: Moments, rate: Tensor) -> Moments:
    """S <- (1 - r) S + r s with masses as shares of one; rate (B, 1)."""
    share = new.mass / new.mass.sum(-1, keepdim=True).clamp(min=1e-12)
    return merge(old._replace(mass=old.mass * (1 - rate)), new._replace(mass=share * rate))


def discount(
    old: Moments, new: Moments, gap: Tensor, precision: Tensor, tolerance: float
) -> Moments:
    """Old moments with the mass they deserve when the class has drifted away from them.

    In a steady class |mean_new - mean_old|^2 / v is about 1/n_k + 1/L_k per dimension, n and L the
    masses. What exceeds `tolerance` times that, averaged over the class (weights n_k), is a drift
    b^2, and a mean that is off by b is worth 1 / (1/L + b^2) points. Applying it twice changes
    nothing more. tolerance = 0 switches it off. gap = new.mean - old.mean.
    """
    if tolerance == 0.0:
        return old
    n, mass = new.mass, old.mass
    square = torch.linalg.vecdot(gap * precision, gap) / gap.shape[-1]  # (B, K)
    past = (mass > 1e-3).to(mass.dtype)  # components that have a past
    chance = 1 + n / mass.clamp(min=1e-3)
    excess = (past * (n * square - tolerance * chance)).sum(-1, keepdim=True)
    excess = excess.clamp(min=0) / (past * n).sum(-1, keepdim=True).clamp(min=1e-12)
    return old._replace(mass=mass / (1 + mass * excess))


class Step(NamedTuple):
    """Outcome of a window step for B classes."""

    mu: Tensor  # (B, K, d)
    var: Tensor  # (B, K, d)
    log_pi: Tensor  # (B, K)
    resp: Tensor  # (B, K, Q), the plan over the queue
    pooled: Tensor  # (B, 1, d), variance within components
    joined: Moments  # of queue and older points
    old: Moments  # the older points with their new mass


def window_step(
    points: Points,
    mixture: tuple[Tensor, Tensor, Tensor],
    old: Moments,
    rate: Tensor | None,
    base: Tensor,
    settings: MixtureSettings,
) -> Step:
    """`passes` times plan, moments, parameters; `rate` (B, 1) for stepwise, None for window."""
    log_a = uniform_log_weights(points.mask, points.z.dtype)
    resp = joined = pooled = None
    for _ in range(settings.passes):
        precision = mixture[1].reciprocal()
        resp, g = plan(points, mixture, precision, log_a, settings)
        new = weighted_moments(resp, points)
        if rate is None:
            gap = new.mean - old.mean
            old = discount(old, new, gap, precision, settings.drift)
            joined = counted = merge(old, new, gap)
        else:  # shares of one, as points for the prior
            joined = stepwise(old, new, rate)
            counted = joined._replace(mass=joined.mass * points.mask.sum(-1, keepdim=True) / rate)
        var, pooled = regularise(counted, base, settings.prior, settings.floor)
        mixture = (joined.mean, var, weights(counted.mass, mixture[2], g, settings))
    assert resp is not None and joined is not None and pooled is not None  # passes >= 1
    return Step(*mixture, resp, pooled, joined, old)
