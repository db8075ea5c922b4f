"""Where the components of a class start, and when they start again: clusters of its queue.

Pure functions over many classes at once, [classes, points, d]. `spectral` clusters the scores on
the K leading principal axes instead of the d coordinates: among few points in many dimensions
noise distances hide the modes, the leading axes do not (Vempala and Wang 2004). Both read only the
Gram matrix. k-means++: Arthur and Vassilvitskii 2007.

A fresh clustering of the queue is accepted when the class has none yet or the queue is still
filling; afterwards it must beat the present mixture. Both are judged as k-means clusterings of
the same points (the present one after Lloyd rounds of its own), so only a difference of
structure counts: a mode without a component, a mode with two.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ocil.fields import setting
from ocil.mixture.moments import (
    Moments,
    Points,
    component_log_density,
    regularise,
    weighted_moments,
    window_points,
)

RESTARTS = 4  # runs of k-means, the best is taken
AGAIN = ("sinkhorn", "em", "stepwise-em", "batch-em", "dual", "debiased", "nll")
MARGIN = 0.2  # a new clustering must lower the scatter within clusters by this share


@dataclass(frozen=True)
class StartSettings:
    points: int | Literal["auto"] = setting("auto", low=1, was=("seed_points",))
    """Points from which a class has K components, one Gaussian before; auto is 16, or the whole
    queue where the features never change."""
    seeding: Literal["spectral", "kmeans++", "random"] = "spectral"
    """Clusters on the leading axes or in all dimensions; random: around K random points."""
    again: int | None = setting(256, low=1, was=("reseed_every",), only={"objective": AGAIN})
    """Points after which a fresh clustering of the queue may take a mixture's place; none never."""


def draw_gumbel(shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard Gumbel variables, drawn on the generator's device and moved to that of `like`."""
    uniform = torch.rand(shape, generator=generator, device=generator.device, dtype=like.dtype)
    uniform = uniform.clamp(min=torch.finfo(like.dtype).tiny, max=1 - 1e-7)
    return (-(-uniform.log()).log()).to(like.device)


def gram(z: Tensor, mask: Tensor) -> Tensor:
    """Centred Gram matrix (B, n, n) of the valid points of z (B, n, d); zero for the others."""
    weight = mask.to(z.dtype).unsqueeze(-1)
    centre = (weight * z).sum(-2, keepdim=True) / weight.sum(-2, keepdim=True).clamp(min=1)
    z = (z - centre) * weight
    return z @ z.mT


def principal_scores(kernel: Tensor, rank: int) -> Tensor:
    """Coordinates of the points on the leading axes, (B, n, rank)."""
    values, vectors = torch.linalg.eigh(kernel)
    return vectors[..., -rank:] * values[..., -rank:].clamp(min=0).sqrt().unsqueeze(-2)


def _kernel_distances(kernel: Tensor, resp: Tensor) -> Tensor:
    """Squared distances (..., K, n) to the centres sum_i r_ki x_i / sum_i r_ki, from x_i . x_j."""
    share = resp / resp.sum(-1, keepdim=True).clamp(min=1e-12)
    cross = share @ kernel
    own = (cross * share).sum(-1, keepdim=True)
    return kernel.diagonal(dim1=-2, dim2=-1).unsqueeze(-2) - 2 * cross + own


def first_centres(kernel: Tensor, mask: Tensor, noise: Tensor, spread: bool) -> Tensor:
    """One-hot centres (..., K, n): k-means++ (`spread`) or random points without repetition.

    noise (..., K, n) are Gumbel variables; a draw in proportion to w is argmax(log w + noise).
    """
    n, square = mask.shape[-1], kernel.diagonal(dim1=-2, dim2=-1)
    log_weight = torch.where(mask, 0.0, -torch.inf).to(noise.dtype).expand(noise[..., 0, :].shape)
    nearest = torch.full_like(log_weight, torch.inf)
    picks = []
    for k in range(noise.shape[-2]):
        index = (log_weight + noise[..., k, :]).argmax(-1, keepdim=True)
        pick = torch.zeros_like(log_weight).scatter_(-1, index, 1.0)
        picks.append(pick)
        row = kernel.expand(*pick.shape, n).gather(
            -2, index.unsqueeze(-1).expand(*pick.shape[:-1], 1, n)
        )
        distance = square - 2 * row.squeeze(-2) + square.expand(pick.shape).gather(-1, index)
        nearest = torch.minimum(nearest, distance.clamp(min=0)).scatter(-1, index, 0.0)
        weight = nearest.log() if spread else torch.where(nearest == 0, -torch.inf, 0.0)
        log_weight = torch.where(mask, weight, -torch.inf)
    return torch.stack(picks, -2)


def lloyd(kernel: Tensor, mask: Tensor, centres: Tensor, rounds: int = 10) -> Tensor:
    """k-means from centres (..., K, n) -> one-hot clusters; an empty cluster keeps its centre."""
    resp = _nearest(_kernel_distances(kernel, centres), mask)
    for _ in range(rounds):
        centres = torch.where(resp.sum(-1, keepdim=True) == 0, centres, resp)
        resp = _nearest(_kernel_distances(kernel, centres), mask)
    return resp


def partition(
    kernel: Tensor, mask: Tensor, noise: Tensor, spread: bool, rounds: int = 10
) -> Tensor:
    """Best of R runs of Lloyd's k-means on points with Gram matrix `kernel` (B, n, n).

    noise (B, R, K, n) -> one-hot responsibilities (B, K, n), zero where mask (B, n) is false.
    `spread` False skips the clustering: points go to the nearest of K random ones.
    """
    kernel, valid = kernel.unsqueeze(1), mask.unsqueeze(1)
    centres = first_centres(kernel, valid, noise, spread)
    resp = lloyd(kernel, valid, centres, rounds if spread else 0)
    best = scatter_within(kernel, resp).argmin(-1)  # (B,)
    return resp.gather(1, best.view(-1, 1, 1, 1).expand(-1, 1, *resp.shape[2:])).squeeze(1)


def _nearest(distance: Tensor, mask: Tensor) -> Tensor:
    """One-hot of the smallest distance over K, zero for padded points."""
    hot = torch.zeros_like(distance).scatter_(-2, distance.argmin(-2, keepdim=True), 1.0)
    return hot * mask.unsqueeze(-2)


def scatter_within(kernel: Tensor, resp: Tensor) -> Tensor:
    """Sum of squared distances to the own cluster's mean, from the Gram matrix: (..., )."""
    within = ((resp @ kernel) * resp).sum(-1) / resp.sum(-1).clamp(min=1e-12)
    return kernel.diagonal(dim1=-2, dim2=-1).sum(-1) - within.sum(-1)


def cluster(
    z: Tensor, mask: Tensor, components: int, seeding: str, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Clusters (B, K, n) of z (B, n, d), and the Gram matrix (B, n, n) they were found in."""
    spread = seeding != "random"
    shape = (len(z), RESTARTS if spread else 1, components, z.shape[1])
    noise = draw_gumbel(shape, generator, z)
    kernel = gram(z, mask)
    if seeding == "spectral" and components < min(z.shape[1:]):
        scores = principal_scores(kernel, components)
        kernel = scores @ scores.mT
    return partition(kernel, mask, noise, spread), kernel


def clearly_better(
    found: Tensor, kernel: Tensor, z: Tensor, mask: Tensor, mixture: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """Whether the clusters `found` (B, K, n) are clearly better (B,) than the mixture's.

    Clearly: the scatter within clusters is lower by the share MARGIN, or lower at all if a
    component has died (weight under 1 / (8 K)).
    """
    mu, var, log_pi = mixture
    scores = component_log_density(window_points(z, mask, mu.mean(1, keepdim=True)), mu, var)
    nearest = (scores + log_pi.unsqueeze(-1)).argmax(1, keepdim=True)
    present = torch.zeros_like(found).scatter_(1, nearest, 1.0) * mask.unsqueeze(1)
    present = lloyd(kernel, mask, present)
    dead = log_pi.amin(-1).exp() < 1 / (8 * mu.shape[1])
    keep = torch.where(dead, 1.0, 1.0 - MARGIN)
    return scatter_within(kernel, found) < keep * scatter_within(kernel, present)


def mixture_of_clusters(
    z: Tensor, mask: Tensor, resp: Tensor, young: Tensor, pooled_variance: Tensor, floor: float
) -> tuple[dict[str, Tensor], Moments, Points]:
    """Parameters for the clusters resp (B, K, n) of z (B, n, d), their moments, and the points.

    An empty cluster gets weight zero in a `young` (B,) class (all is in component 0), and otherwise
    half a pseudo-point at the centre of the class.
    """
    weight = mask.unsqueeze(-1).to(z.dtype)
    centre = (z * weight).sum(1, keepdim=True) / weight.sum(1, keepdim=True)
    points = window_points(z, mask, centre)
    found = weighted_moments(resp, points)
    var, _, variance_floor = regularise(found, pooled_variance, floor)
    mass = torch.where(young.unsqueeze(-1), found.mass, found.mass + 0.5)
    log_pi = torch.log_softmax(mass.log(), -1)
    new = {"mu": found.mean, "var": var, "log_pi": log_pi, "least": variance_floor.flatten()}
    return new, found, points
