"""Weighted moments of batched diagonal mixtures, as matrix products over [classes, K, points].

Responsibilities are (B, K, n): points last, which is the layout the products are fastest in.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LOG_2PI = 1.8378770664093453
PRIOR = 1.0  # pseudo-points of the class's pooled variance in each component
FLOOR = 1e-3  # no variance falls below this share of the class's mean variance


class Moments(NamedTuple):
    """Mass, mean and (biased) variance of each component."""

    mass: Tensor  # (B, K)
    mean: Tensor  # (B, K, d)
    var: Tensor  # (B, K, d)


class Points(NamedTuple):
    """A window of points with its squares, moved by `shift` so that squares keep their digits."""

    z: Tensor  # (B, n, d), shifted
    square: Tensor  # (B, n, d)
    mask: Tensor  # (B, n) bool
    shift: Tensor  # (B, 1, d)


def window_points(
    z: Tensor, mask: Tensor, shift: Tensor, places: tuple[Tensor, Tensor] | None = None
) -> Points:
    """Points of z (B, n, d) relative to shift (B, 1, d), with their squares.

    `places` are two tensors of z's shape to write both to; the first may be z itself.
    """
    moved, squared = places or (None, None)
    z = torch.sub(z, shift, out=moved)
    return Points(z, torch.mul(z, z, out=squared), mask, shift)


def component_log_density(
    points: Points, mu: Tensor, var: Tensor, precision: Tensor | None = None
) -> Tensor:
    """log N(z; mu_k, diag var_k) -> (B, K, n), the square expanded into two products."""
    precision = var.reciprocal() if precision is None else precision
    mu = mu - points.shift
    weighted = mu * precision
    offset = torch.linalg.vecdot(weighted, mu) + var.log().sum(-1) + mu.shape[-1] * LOG_2PI
    quadratic = torch.baddbmm(offset.unsqueeze(-1), precision, points.square.mT)
    return torch.baddbmm(quadratic, weighted, points.z.mT, beta=-0.5)


def weighted_moments(resp: Tensor, points: Points) -> Moments:
    """Moments under responsibilities (B, K, n), zero where the mask is; mean is not shifted."""
    mass = resp.sum(-1)
    share = resp / mass.clamp(min=torch.finfo(resp.dtype).tiny).unsqueeze(-1)
    mean = share @ points.z
    var = torch.bmm(share, points.square).addcmul_(mean, mean, value=-1).clamp_(min=0)
    return Moments(mass, mean.add_(points.shift), var)


def merge(a: Moments, b: Moments, gap: Tensor | None = None) -> Moments:
    """Moments of the union of two weighted samples (Chan, Golub, LeVeque 1983).

    `gap` = b.mean - a.mean may be given if it is known.
    """
    mass = a.mass + b.mass
    share = (b.mass / mass.clamp(min=torch.finfo(mass.dtype).tiny)).unsqueeze(-1)  # of b
    gap = b.mean - a.mean if gap is None else gap
    mean = torch.addcmul(a.mean, share, gap)
    var = torch.lerp(a.var, b.var, share).addcmul_(share * (1 - share), gap.square())
    return Moments(mass, mean, var)


def cap(old: Moments, most: float) -> Moments:
    """Old moments with a total mass of at most `most` points."""
    total = old.mass.sum(-1, keepdim=True)
    return old._replace(mass=old.mass * (most / total.clamp(min=1e-12)).clamp(max=1))


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
    nothing more. gap = new.mean - old.mean.
    """
    n, mass = new.mass, old.mass
    square = torch.linalg.vecdot(gap * precision, gap) / gap.shape[-1]  # (B, K)
    past = (mass > 1e-3).to(mass.dtype)  # components that have a past
    chance = 1 + n / mass.clamp(min=1e-3)
    excess = (past * (n * square - tolerance * chance)).sum(-1, keepdim=True)
    excess = excess.clamp(min=0) / (past * n).sum(-1, keepdim=True).clamp(min=1e-12)
    return old._replace(mass=mass / (1 + mass * excess))


def regularise(
    moments: Moments, pooled_variance: Tensor, floor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Variance (B, K, d) with a prior and a floor, the class's own (B, 1, d), the floor (B, 1, 1).

    v_k <- (N_k v_k + a v) / (N_k + a) with a = PRIOR pseudo-points of the class's variance
    v = sum_k N_k v_k / sum_k N_k, itself drawn towards that of all classes, `pooled_variance`
    (d,), by as many; and v_k >= floor * mean_d(v).
    """
    mass = moments.mass
    total = (mass.sum(-1) + PRIOR).clamp(min=1e-12).view(-1, 1, 1)
    own = torch.bmm(mass.unsqueeze(1) / total, moments.var) + (PRIOR / total) * pooled_variance
    share = (mass / (mass + PRIOR).clamp(min=1e-12)).unsqueeze(-1)
    variance_floor = (floor * own.mean(-1, keepdim=True)).clamp(min=smallest_variance(own.dtype))
    return torch.lerp(own, moments.var, share).clamp_(min=variance_floor), own, variance_floor


def smallest_variance(dtype: torch.dtype) -> float:
    """What no variance may fall below, so that its reciprocal and their products stay finite."""
    return torch.finfo(dtype).tiny * 1e8


def variance_within(z: Tensor, mask: Tensor) -> Tensor | None:
    """Variance (d,) of points (B, n, d) about the mean of their row, all rows pooled.

    sum_bn mask |z - mean_b|^2 / sum_b (n_b - 1); None where no row has two points.
    """
    kept, count = mask.unsqueeze(-1), mask.sum(-1)
    spare = int((count - 1).clamp(min=0).sum())
    if not spare:
        return None
    mean = (z * kept).sum(1, keepdim=True) / count.clamp(min=1).view(-1, 1, 1)
    return ((z - mean) * kept).square().sum((0, 1)) / spare
