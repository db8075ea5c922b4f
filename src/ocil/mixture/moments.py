"""Weighted moments of batched diagonal mixtures, as matrix products over [classes, K, points].

Responsibilities are (B, K, n): points last, which is the layout the products are fastest in.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LOG_2PI = 1.8378770664093453


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


def regularise(moments: Moments, base: Tensor, prior: float, floor: float) -> tuple[Tensor, Tensor]:
    """Variance (B, K, d) with a prior and a floor, and the class's pooled variance (B, 1, d).

    v_k <- (N_k v_k + prior * v_pool) / (N_k + prior), v_pool = sum_k N_k v_k / sum_k N_k, itself
    drawn towards `base` (d,) by `prior` pseudo-points, and v_k >= floor * mean_d(v_pool).
    """
    mass = moments.mass
    total = (mass.sum(-1) + prior).clamp(min=1e-12).view(-1, 1, 1)
    pooled = torch.bmm(mass.unsqueeze(1) / total, moments.var) + (prior / total) * base
    share = (mass / (mass + prior).clamp(min=1e-12)).unsqueeze(-1)
    return torch.lerp(pooled, moments.var, share).clamp_(min=floor_of(pooled, floor)), pooled


def floor_of(pooled: Tensor, floor: float) -> Tensor:
    """The floor (B, 1, 1) that `regularise` puts under variances, from the pooled one (B, 1, d)."""
    return (floor * pooled.mean(-1, keepdim=True)).clamp(min=least_variance(pooled.dtype))


def least_variance(dtype: torch.dtype) -> float:
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


def merged_gaussian(mu: Tensor, var: Tensor, pi: Tensor) -> tuple[Tensor, Tensor]:
    """One Gaussian with the mixture's mean and variance: (B, K, d), (B, K) -> (B, d), (B, d)."""
    mean = (pi.unsqueeze(-1) * mu).sum(-2)
    spread = var + (mu - mean.unsqueeze(-2)).square()
    return mean, (pi.unsqueeze(-1) * spread).sum(-2)
