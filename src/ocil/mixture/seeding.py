"""Where the components of a class start: clusters of its queue, for many classes at once.

`spectral` clusters the scores on the K leading principal axes instead of the d coordinates:
among few points in many dimensions noise distances hide the modes, the leading axes do not
(Vempala and Wang 2004). Both read only the Gram matrix. k-means++: Arthur and Vassilvitskii 2007.
"""

from __future__ import annotations

import torch
from torch import Tensor


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
    kernel: Tensor, mask: Tensor, noise: Tensor, rounds: int = 10, spread: bool = True
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
