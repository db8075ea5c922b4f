"""The objectives of dual.py as functions of samples and points, all classes at once.

The paper's equations: `sample_mixture` is (6) with Gumbel-Softmax, `dual_loss` the value inside
(9), whose soft minimum over the points, phi~, is in `transport.semidual`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ocil.mixture.kmeans import draw_gumbel
from ocil.mixture.moments import Points, component_log_density
from ocil.mixture.transport import semidual, sinkhorn, squared_distances, uniform_log_weights

if TYPE_CHECKING:
    from ocil.mixture.dual import DualSettings

PLAN_STEPS = 5  # debiased: iterations of Sinkhorn

Noise = tuple[Tensor, Tensor]  # Gumbel variables (..., S, K), standard normal ones (..., S, K, d)


class Sample(NamedTuple):
    """Points of the mixture and the variance each was drawn with."""

    points: Tensor  # (..., S, d)
    var: Tensor  # (..., S, d), detached


def draw(shape: tuple[int, ...], dim: int, generator: torch.Generator, like: Tensor) -> Noise:
    """Noise for `shape` = (..., S, K) in `dim` dimensions."""
    gumbel = draw_gumbel(shape, generator, like)
    device = generator.device
    normal = torch.randn((*shape, dim), generator=generator, device=device, dtype=like.dtype)
    return gumbel, normal.to(like.device)


def sample_mixture(
    mu: Tensor, sigma: Tensor, log_pi: Tensor, noise: Noise, temperature: float
) -> Sample:
    """z~ = sum_k l_k (mu_k + sigma_k eps_k), l = softmax((log pi + G) / temperature).

    Gradients reach mu, sigma (..., K, d) and log_pi (..., K).
    """
    gumbel, normal = noise
    labels = torch.softmax((log_pi.unsqueeze(-2) + gumbel) / temperature, dim=-1)
    shifted = sigma.unsqueeze(-3) * normal  # (..., S, K, d)
    points = labels @ mu + (labels.unsqueeze(-1) * shifted).sum(-2)
    return Sample(points, (labels @ sigma.square()).detach())


def phi(network: Sequence[Tensor], z: Tensor) -> Tensor:
    """Values (B, n) of the B networks, or of a single one, on points (B, n, d)."""
    w1, b1, w2 = (layer.expand(len(z), *layer.shape[1:]) for layer in network)
    hidden = torch.nn.functional.softplus(torch.baddbmm(b1.unsqueeze(1), z, w1))
    return (hidden @ w2.unsqueeze(-1)).squeeze(-1)


def pair_cost(sample: Sample, z: Tensor, s: DualSettings) -> Tensor:
    """Cost per dimension (B, S, n) between samples and points."""
    precision = sample.var.reciprocal() if s.cost == "mahalanobis" else None
    return squared_distances(sample.points, z, precision) / z.shape[-1]


def dual_loss(
    sample: Sample, z: Tensor, mask: Tensor, network: Sequence[Tensor], s: DualSettings
) -> Tensor:
    """J per class (B,); one-to-one pairing compares sample j with point j.

    Without a number of samples there are as many as a class has points, those of its mask.
    """
    if s.pairing == "one":
        gap = (sample.points - z).square()
        gap = gap / sample.var if s.cost == "mahalanobis" else gap
        return (gap.mean(-1) * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    seen = mask.new_ones(sample.points.shape[:2]) if s.samples else mask
    log_p, log_q = uniform_log_weights(mask, z.dtype), uniform_log_weights(seen, z.dtype)
    return semidual(phi(network, z), pair_cost(sample, z, s), log_p, log_q, s.eps)


def debiased_loss(
    first: Sample, second: Sample, z: Tensor, mask: Tensor, s: DualSettings
) -> Tensor:
    """W_eps(p, q) - W_eps(q, q') / 2 per class (B,), gradients by the envelope theorem."""
    log_p = uniform_log_weights(mask, z.dtype)
    log_q = uniform_log_weights(torch.ones_like(first.points[..., 0], dtype=torch.bool), z.dtype)
    cross = sinkhorn(pair_cost(first, z, s), log_q, log_p, s.eps, PLAN_STEPS).value
    own = sinkhorn(pair_cost(first, second.points, s), log_q, log_q, s.eps, PLAN_STEPS).value
    return cross - own / 2


def nll_loss(mu: Tensor, sigma: Tensor, log_pi: Tensor, z: Tensor, mask: Tensor) -> Tensor:
    """-mean_j log q(z_j) per class and dimension (B,)."""
    points = Points(z, z.square(), mask, torch.zeros_like(z[:, :1]))
    scores = component_log_density(points, mu, sigma.square()) + log_pi.unsqueeze(-1)
    mean = (torch.logsumexp(scores, 1) * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    return -mean / z.shape[-1]
