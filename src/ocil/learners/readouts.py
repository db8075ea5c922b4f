"""Read-outs: functions of features, which are computed once for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.errors import OcilError, suggest


class Features(dict[str, Tensor]):
    """Features (n, d) of some images in each latent space, such as "live" or "average".

    >>> features = Features(lambda space: torch.zeros(2, len(space)))
    >>> features["live"].shape, list(features)
    (torch.Size([2, 4]), ['live'])
    """

    def __init__(self, compute: Callable[[str], Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def __missing__(self, space: str) -> Tensor:
        self[space] = self.compute(space)
        return self[space]


class Centroids(NamedTuple):
    """m points that stand for classes in the space of a read-out."""

    points: Tensor  # (m, d)
    classes: Tensor  # (m,) class ids
    weights: Tensor  # (m,) share in the class; those of a class sum to one
    variances: Tensor | None = None  # (m, d) where the method has them


class Readout(NamedTuple):
    """A way to classify: features -> scores (n, classes seen), larger is likelier."""

    scores: Callable[[Features], Tensor]
    points: Callable[[Features], Tensor]  # (n, d) what it compares with the classes, for pictures
    centroids: Callable[[], Centroids] | None = None  # among them; None: class means of the memory
    needs_memory: bool = False  # it answers by the memory's images
    novelty: Callable[[Features], Tensor] | None = None  # (n,) None: minus the log-probability
    left_out: Callable[[], Tensor | None] | None = None  # the same of held samples, as if not held


def mean_centroids(z: Tensor, y: Tensor, classes: int) -> Centroids:
    """The mean of z (n, d) over each class in y (n,), one centroid for every class present."""
    counts = torch.bincount(y, minlength=classes)
    present = counts.nonzero()[:, 0]
    sums = z.new_zeros(classes, z.shape[1]).index_add_(0, y, z)
    return Centroids(sums[present] / counts[present, None], present, z.new_ones(len(present)))


def class_means(z: Tensor, y: Tensor, classes: int) -> Tensor:
    """Mean direction of each class: z (n, d), y (n,) -> (classes, d), unit length, inf if absent.

    m_c = u / |u| with u = sum_{i: y_i = c} z_i / |z_i|.
    """
    sums = z.new_zeros(classes, z.shape[1]).index_add_(0, y, F.normalize(z, dim=1))
    absent = torch.bincount(y, minlength=classes) == 0
    return F.normalize(sums, dim=1).masked_fill(absent[:, None], torch.inf)


def nearest_mean(z: Tensor, means: Tensor) -> Tensor:
    """-|z / |z| - m_c|^2 for z (n, d) and means (C, d) -> (n, C); -inf for an absent class."""
    distance = torch.cdist(F.normalize(z, dim=1), means)
    return -distance.square().nan_to_num(nan=torch.inf, posinf=torch.inf)


def pick_readout(wanted: str, own: Sequence[str], known: Sequence[str], method: str) -> str:
    """The read-out that is wanted; "auto" is the first of the method's own that is known."""
    if wanted == "auto":
        return next(name for name in own if name in known)
    if wanted not in known:
        hint = f"'{wanted}' for {method}.{suggest(wanted, known)}"
        raise OcilError(f"Unknown read-out {hint} Known here: {', '.join(known)}.")
    return wanted
