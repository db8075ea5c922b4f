"""Read-outs as pure functions of features."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F


class Centroids(NamedTuple):
    """m points that stand for classes in the space of a read-out."""

    points: torch.Tensor  # (m, d)
    classes: torch.Tensor  # (m,) class ids
    weights: torch.Tensor  # (m,) share in the class; those of a class sum to one
    variances: torch.Tensor | None = None  # (m, d) where the method has them


def mean_centroids(z: torch.Tensor, y: torch.Tensor, classes: int) -> Centroids:
    """The mean of z (n, d) over each class in y (n,), one centroid for every class present."""
    counts = torch.bincount(y, minlength=classes)
    present = counts.nonzero()[:, 0]
    sums = z.new_zeros(classes, z.shape[1]).index_add_(0, y, z)
    return Centroids(sums[present] / counts[present, None], present, z.new_ones(len(present)))


def class_means(z: torch.Tensor, y: torch.Tensor, classes: int) -> torch.Tensor:
    """Mean direction of each class: z (n, d), y (n,) -> (classes, d), unit length, inf if absent.

    m_c = u / |u| with u = sum_{i: y_i = c} z_i / |z_i|.
    """
    sums = z.new_zeros(classes, z.shape[1]).index_add_(0, y, F.normalize(z, dim=1))
    absent = torch.bincount(y, minlength=classes) == 0
    return F.normalize(sums, dim=1).masked_fill(absent[:, None], torch.inf)


def nearest_mean(z: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
    """-|z / |z| - m_c|^2 for z (n, d) and means (C, d) -> (n, C); -inf for an absent class."""
    distance = torch.cdist(F.normalize(z, dim=1), means)
    return -distance.square().nan_to_num(nan=torch.inf, posinf=torch.inf)
