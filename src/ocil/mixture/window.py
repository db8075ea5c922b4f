"""Window steps: stepwise EM, batch EM and Sinkhorn-EM are one update with different plans.

A class's statistics are the moments of its window (its latest points) under fresh
responsibilities, joined with the moments of older points. Two ways to join them:

- a point that leaves the window is added to the old moments with its last responsibilities, so
  every point counts once and recent ones are assigned anew at each update; the old mass is capped
  at HORIZON points (incremental EM, Neal and Hinton 1998, with a window);
- `stepwise-em`: S <- (1 - r_t) S + r_t s, r_t = (t + 2)^-power (Cappe and Moulines 2009).

EM's plan is the posterior; that of `sinkhorn` is the (relaxed) transport plan to weights pi.
`batch-em` is EM with several passes over the whole queue and no older moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ocil.fields import setting
from ocil.mixture.moments import (
    Moments,
    Points,
    cap,
    component_log_density,
    discount,
    merge,
    regularise,
    stepwise,
    weighted_moments,
)
from ocil.mixture.store import Ints
from ocil.mixture.transport import responsibilities

if TYPE_CHECKING:
    from ocil.mixture.mixtures import Mixtures

HORIZON = 512.0  # points older than the window that count in a class's moments
DRIFT = 1.5  # older points lose mass when means move by more than this many times chance
PLAN_STEPS, RELAX = 5, 0.5  # sinkhorn: iterations; column marginal, 0 free, 1 fixed to pi
RATE_POWER = 0.6  # of the stepwise average
MOVED = ("sinkhorn", "em", "stepwise-em", "dual", "debiased", "nll")  # not by all of the queue
OLD = ("old_mass", "old_mean", "old_var")


@dataclass(frozen=True)
class WindowSettings:
    points: int | None = setting(16, low=1, was=("window",), only={"objective": MOVED})
    """Update from this many latest features of a class; none: from those of the batch alone."""
    queue: int = setting(64, low=1, was=("queue",))
    """Latest features kept a class, from which its components start."""


class Step(NamedTuple):
    """Outcome of a window step for B classes."""

    mixture: tuple[Tensor, Tensor, Tensor]  # mu, var (B, K, d), log_pi (B, K)
    resp: Tensor  # (B, K, n), the plan over the window
    within: Tensor  # (B, 1, d), variance within components
    variance_floor: Tensor  # (B, 1, 1)
    joined: Moments  # of window and older points
    old: Moments  # the older points with their new mass


def window_step(
    points: Points,
    mixture: tuple[Tensor, Tensor, Tensor],
    old: Moments,
    rate: Tensor | None,
    pooled_variance: Tensor,
    floor: float,
    plan_steps: int,
    passes: int,
) -> Step:
    """`passes` times plan, moments, parameters; `rate` (B, 1) of the stepwise average or None."""
    resp = joined = within = variance_floor = None
    for _ in range(passes):
        mu, var, log_pi = mixture
        precision = var.reciprocal()
        scores = component_log_density(points, mu, var, precision)
        resp, _ = responsibilities(scores, log_pi, points.mask, plan_steps, RELAX)
        new = weighted_moments(resp, points)
        if rate is None:
            gap = new.mean - old.mean
            old = discount(old, new, gap, precision, DRIFT)
            joined = counted = merge(old, new, gap)
        else:  # shares of one, as points for the prior
            joined = stepwise(old, new, rate)
            counted = joined._replace(mass=joined.mass * points.mask.sum(-1, keepdim=True) / rate)
        var, within, variance_floor = regularise(counted, pooled_variance, floor)
        # half a pseudo-point in each weight
        mixture = joined.mean, var, torch.log_softmax((counted.mass + 0.5).log(), -1)
    assert resp is not None and joined is not None  # passes >= 1
    assert within is not None and variance_floor is not None
    return Step(mixture, resp, within, variance_floor, joined, old)


class Window:
    """Moves mixtures by window steps."""

    def __init__(self, mixtures: Mixtures) -> None:
        s, dim = mixtures.settings, mixtures.dim
        self.mixtures, self.stepwise = mixtures, s.objective == "stepwise-em"
        batch = s.objective == "batch-em"
        self.passes, self.horizon = (s.em.passes, 0.0) if batch else (1, HORIZON)
        self.floor = s.floor
        self.plan_steps = PLAN_STEPS if s.objective == "sinkhorn" else 0
        k, q = s.components, s.window.queue
        for name, shape in zip((*OLD, "resp"), ((k,), (k, dim), (k, dim), (q, k)), strict=True):
            mixtures.store.add(name, shape)

    def start(
        self, resp: Tensor, settled: Tensor, found: Moments, points: Points
    ) -> dict[str, Tensor]:
        """Columns of classes that start from clusters resp (B, K, Q) of their queues.

        Old are the points `settled` (B, Q) before the window; for the stepwise average all.
        """
        if self.stepwise:
            old = found._replace(mass=found.mass / found.mass.sum(-1, keepdim=True))
        else:
            old = weighted_moments(resp * settled.unsqueeze(1), points)
        return {"resp": resp.mT, **dict(zip(OLD, old, strict=True))}

    def absorb(self, classes: Ints, past: Ints, first: Ints) -> None:
        """Add the points numbered past..first-1, which leave the window, to the old moments."""
        if self.stepwise:
            return
        store, rows = self.mixtures.store, self.mixtures.store.rows(classes)
        old = Moments(*store.take(rows, *OLD))
        flat, points = store.queued(classes, past, first, old.mean[:, :1])
        resp = store.columns["resp"].flatten(0, 1).index_select(0, flat.view(-1))
        resp = resp.view(*flat.shape, -1).mT * points.mask.unsqueeze(1)
        joined = cap(merge(old, weighted_moments(resp, points)), self.horizon)
        store.put(rows, dict(zip(OLD, joined, strict=True)))

    def move(self, classes: Ints, first: Ints, count: Ints, _: torch.Generator) -> None:
        """A plan over the points numbered first..count-1 of each class, then its moments."""
        m, store, rows = self.mixtures, self.mixtures.store, self.mixtures.store.rows(classes)
        updates, rate = store.host("steps"), None
        if self.stepwise:
            power = (updates[classes, None] + 2.0) ** -RATE_POWER
            rate = torch.from_numpy(power).to(store.device, store.dtype)
        mu, var, log_pi, *old = store.take(rows, "mu", "var", "log_pi", *OLD)
        flat, points = store.queued(classes, first, count, mu.mean(1, keepdim=True))
        step = window_step(
            points, (mu, var, log_pi), Moments(*old), rate, m.pooled_variance,
            self.floor, self.plan_steps, self.passes,
        )  # fmt: skip
        mu, var, log_pi = step.mixture
        new = {"mu": mu, "var": var, "log_pi": log_pi, "least": step.variance_floor.flatten()}
        if rate is None:
            new["old_mass"] = step.old.mass
            resp, sizes = step.resp.mT, count - first
            if (sizes < sizes.max()).any():
                resp, flat = resp[points.mask], flat[points.mask]
            resp = resp.reshape(-1, resp.shape[-1])
            store.columns["resp"].flatten(0, 1).index_copy_(0, flat.view(-1), resp)
        else:
            new |= dict(zip(OLD, step.joined, strict=True))
        store.put(rows, new)
        m.pooled_variance.lerp_(step.within.mean((0, 1)), 0.05)
        updates[classes] += 1
