"""Reading mixtures: distances and densities of points to all classes, as matrix products.

Shapes: z (n, d), mu and var (C, K, d), log_pi (C, K). A component of weight zero (log_pi = -inf)
is at infinite distance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.mixture.moments import LOG_2PI


def mahalanobis(z: Tensor, mu: Tensor, var: Tensor, log_pi: Tensor) -> Tensor:
    """sum_j (z_j - mu_kcj)^2 / var_kcj -> (n, C, K), squared, by two products."""
    classes, components, dim = mu.shape
    shift = mu.mean((0, 1))  # expanded squares lose digits far from the origin
    z, mu = z - shift, (mu - shift).view(-1, dim)
    precision = var.view(-1, dim).reciprocal()
    weighted = mu * precision
    distance = torch.addmm((weighted * mu).sum(-1), z.square(), precision.T)
    distance = torch.addmm(distance, z, weighted.T, alpha=-2.0).clamp_(min=0)
    distance = distance.view(-1, classes, components)
    return distance.masked_fill_(log_pi == -torch.inf, torch.inf)


def log_density(z: Tensor, mu: Tensor, var: Tensor, log_pi: Tensor) -> Tensor:
    """log sum_k pi_k N(z; mu_k, diag var_k) -> (n, C)."""
    constant = log_pi - 0.5 * (var.log().sum(-1) + mu.shape[-1] * LOG_2PI)
    return torch.logsumexp(constant - 0.5 * mahalanobis(z, mu, var, log_pi), -1)


def own_distances(z: Tensor, mu: Tensor, var: Tensor, log_pi: Tensor) -> Tensor:
    """Squared Mahalanobis distances of z (n, d) to the components of one class each.

    mu and var are (n, K, d), log_pi (n, K): the rows of each point's own class -> (n, K).
    """
    distance = ((z.unsqueeze(1) - mu).square() / var).sum(-1)
    return distance.masked_fill(log_pi == -torch.inf, torch.inf)


def pool_variance(var: Tensor, log_pi: Tensor) -> Tensor:
    """Within-component variance (d,) over all classes, equal weight per class seen."""
    weight = log_pi.exp()  # (C, K); rows of classes never seen are zero
    total = weight.sum().clamp(min=1e-12)
    return torch.einsum("ck,ckd->d", weight, var) / total


def shrink(var: Tensor, log_pi: Tensor, share: float) -> Tensor:
    """(1 - a) v + a v_pooled; a = 0 returns the variances themselves."""
    if share == 0.0:
        return var
    return torch.lerp(var, pool_variance(var, log_pi).expand_as(var), share)
