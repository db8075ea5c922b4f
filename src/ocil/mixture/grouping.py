"""Points of a batch by class, padded: index arithmetic on the host, where the labels are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Group(NamedTuple):
    """The classes of a batch and which points are theirs; all on the CPU."""

    classes: Tensor  # (B,) class ids, ascending
    sizes: Tensor  # (B,) points of each
    index: Tensor  # (B, n) into the batch; 0 where padded
    mask: Tensor  # (B, n)


def group_by_class(labels: Tensor) -> Group:
    """Group labels (N,) into padded rows; the order inside a class is the order in the batch.

    >>> group_by_class(torch.tensor([7, 2, 7])).index.tolist()
    [[1, 0], [0, 2]]
    """
    classes, inverse, sizes = torch.unique(labels, return_inverse=True, return_counts=True)
    order = torch.argsort(inverse, stable=True)
    starts = sizes.cumsum(0) - sizes
    width = torch.arange(int(sizes.max()) if len(sizes) else 0)
    mask = width < sizes.unsqueeze(1)
    index = torch.where(mask, starts.unsqueeze(1) + width, 0)
    return Group(classes, sizes, torch.where(mask, order[index] if len(order) else index, 0), mask)


def split(group: Group, most: int) -> list[Group]:
    """The same points in rounds of at most `most` per class (a queue holds no more)."""
    if group.mask.shape[1] <= most:
        return [group]
    rounds = []
    for start in range(0, group.mask.shape[1], most):
        mask = group.mask[:, start : start + most]
        kept = mask.any(1)
        sizes = mask.sum(1)[kept]
        index = group.index[kept, start : start + most]
        rounds.append(Group(group.classes[kept], sizes, index, mask[kept]))
    return rounds
