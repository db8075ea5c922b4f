"""Points of a batch by class, padded: index arithmetic on the host, where the labels are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Group(NamedTuple):
    """The classes of a batch and which of its points are theirs."""

    classes: Ints  # (B,) class ids, ascending
    sizes: Ints  # (B,) points of each
    order: Ints  # (N,) points of the batch, class after class, in their order within a class


def group_by_class(labels: Ints) -> Group:
    """Group labels (N,); the order inside a class is the order in the batch.

    >>> group_by_class(np.array([7, 2, 7])).order.tolist()
    [1, 0, 2]
    """
    classes, sizes = np.unique(labels, return_counts=True)
    return Group(classes, sizes, np.argsort(labels, kind="stable"))


def of_classes(group: Group, wanted: Bools) -> Group:
    """The classes where `wanted` (B,), with their points.

    >>> of_classes(group_by_class(np.array([7, 2, 7])), np.array([False, True])).order.tolist()
    [0, 2]
    """
    return Group(
        group.classes[wanted], group.sizes[wanted], group.order[np.repeat(wanted, group.sizes)]
    )


def split(group: Group, most: int) -> list[Group]:
    """The same points in rounds of at most `most` per class (a queue holds no more)."""
    if group.sizes.max(initial=0) <= most:
        return [group]
    starts = np.cumsum(group.sizes) - group.sizes
    place = np.arange(len(group.order)) - np.repeat(starts, group.sizes)
    owner = np.repeat(np.arange(len(group.classes)), group.sizes)
    rounds = []
    for start in range(0, int(group.sizes.max()), most):
        kept = (place >= start) & (place < start + most)
        sizes = np.bincount(owner[kept], minlength=len(group.classes))
        there = sizes > 0
        rounds.append(Group(group.classes[there], sizes[there], group.order[kept]))
    return rounds


def ring(classes: Ints, first: Ints, end: Ints, length: int) -> tuple[Ints, Bools]:
    """Flat places (B, w) in rings of `length` of the points numbered first..end-1, and their mask.

    >>> places, mask = ring(np.array([1]), np.array([3]), np.array([6]), 4)
    >>> places.tolist(), mask.tolist()
    ([[7, 4, 5]], [[True, True, True]])
    """
    number = first[:, None] + np.arange((end - first).max(initial=0))
    return classes[:, None] * length + number % length, number < end[:, None]
