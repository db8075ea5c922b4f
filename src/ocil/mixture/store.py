"""Named tensors with one row per class that grow by doubling, and whose points a batch holds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ocil.errors import OcilError
from ocil.mixture.moments import Points, window_points
from ocil.rows import without

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = Tensor | slice  # class ids; neighbours as a slice, which costs no copy


class ClassStore:
    """Rows for classes 0..C-1 in tensors of a larger capacity, so adding a class is O(1) amortised.

    `host` columns (counters that decide control flow) stay on the CPU: reading them never waits.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.size = 0
        self.columns: dict[str, Tensor] = {}
        self._fill: dict[str, float] = {}
        self._work: dict[str, Tensor] = {}  # room for intermediate results, no state

    def add(self, name: str, shape: tuple[int, ...], fill: float = 0.0, host: bool = False) -> None:
        """Declare a column with rows of `shape`; host columns are int64 on the CPU."""
        device, dtype = ("cpu", torch.int64) if host else (self.device, self.dtype)
        self.columns[name] = torch.full((0, *shape), fill, device=device, dtype=dtype)
        self._fill[name] = fill

    def grow(self, size: int) -> None:
        """Make room for `size` classes; new rows hold the fill value of their column."""
        self.size = max(self.size, size)
        capacity = next(iter(self.columns.values())).shape[0]
        if size <= capacity:
            return
        room = max(8, 2 * capacity, size) - capacity
        for name, column in self.columns.items():
            extra = column.new_full((room, *column.shape[1:]), self._fill[name])
            self.columns[name] = torch.cat([column, extra])

    def forget(self, label: int) -> None:
        """Take out the row of a class, if there is one."""
        if label < self.size:
            self.size -= 1
            self.columns = {name: without(c, label) for name, c in self.columns.items()}

    def __getitem__(self, name: str) -> Tensor:
        """A view of the rows in use."""
        return self.columns[name][: self.size]

    def host(self, name: str) -> Ints:
        """A host column's rows as an array that shares their memory."""
        return self.columns[name][: self.size].numpy()

    def take(self, rows: Rows, *names: str) -> list[Tensor]:
        """Some rows (B, ...) of columns: copies; of a slice views, to be read before a `put`."""
        if isinstance(rows, slice):
            return [self.columns[name][rows] for name in names]
        return [self.columns[name].index_select(0, rows) for name in names]

    def put(self, rows: Rows, values: Mapping[str, Tensor]) -> None:
        """Write rows (B, ...) back, by column."""
        for name, value in values.items():
            if isinstance(rows, slice):
                self.columns[name][rows] = value
            else:
                self.columns[name].index_copy_(0, rows, value)

    def rows(self, classes: Ints) -> Rows:
        """Where classes are: a slice where none is missing between them."""
        first, end = int(classes[0]), int(classes[-1]) + 1
        return slice(first, end) if end - first == len(classes) else self.to_device(classes)

    def to_device(self, values: Ints | Bools) -> Tensor:
        return torch.from_numpy(values).to(self.device)

    # ---------------------------------------------------------------- rings of latest points

    def enqueue(self, z: Tensor, group: Group) -> None:
        """Write the points z (n, d) of a batch into the rings of their classes."""
        counts, queue = self.host("count"), self.columns["queue"]
        before = counts[group.classes]
        flat, mask = ring(group.classes, before, before + group.sizes, queue.shape[1])
        points = z.index_select(0, self.to_device(group.order))
        queue.flatten(0, 1).index_copy_(0, self.to_device(flat[mask]), points)
        counts[group.classes] = before + group.sizes

    def queued(self, classes: Ints, first: Ints, end: Ints, shift: Tensor) -> tuple[Tensor, Points]:
        """Flat places (B, w) of the points numbered first..end-1 in the rings, and the points.

        They lie in memory that is used again, and are moved by shift (B, 1, d).
        """
        queue = self.columns["queue"]
        places, valid = ring(classes, first, end, queue.shape[1])
        flat, mask = self.to_device(places), self.to_device(valid)
        room = (*flat.shape, queue.shape[2])
        z, squares = self._scratch("points", room), self._scratch("squares", room)
        torch.index_select(queue.flatten(0, 1), 0, flat.view(-1), out=z.view(-1, room[2]))
        return flat, window_points(z, mask, shift, (z, squares))

    def _scratch(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Room for numbers, kept between updates: fresh pages cost more than the work."""
        size = math.prod(shape)
        held = self._work.get(name)
        if held is None or held.numel() < size:
            held = self._work[name] = torch.empty(size, device=self.device, dtype=self.dtype)
        return held[:size].view(shape)

    # ---------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the rows in use."""
        return {name: self[name].clone() for name in self.columns}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state_dict` gave, into the same columns; nothing changes on an error."""
        size = state["count"].shape[0] if "count" in state and state["count"].ndim else 0
        for name, column in self.columns.items():
            shape = (size, *column.shape[1:])
            if name not in state or tuple(state[name].shape) != shape:
                found = tuple(state[name].shape) if name in state else "missing"
                raise OcilError(
                    f"Column '{name}' of the saved mixtures is {found}, expected {shape}; "
                    "load them with the settings they were saved with."
                )
        self.size = 0
        self.columns = {name: column[:0].clone() for name, column in self.columns.items()}
        self.grow(size)
        for name, column in self.columns.items():
            column[:size] = state[name].to(column)


class Group(NamedTuple):
    """The classes of a batch and which of its points are theirs."""

    classes: Ints  # (B,) class ids, ascending
    sizes: Ints  # (B,) points of each
    order: Ints  # (N,) points of the batch, class after class, in their order within a class

    def only(self, wanted: Bools) -> Group:
        """The classes where `wanted` (B,), with their points.

        >>> group_by_class(np.array([7, 2, 7])).only(np.array([False, True])).order.tolist()
        [0, 2]
        """
        order = self.order[np.repeat(wanted, self.sizes)]
        return Group(self.classes[wanted], self.sizes[wanted], order)


def group_by_class(labels: Ints) -> Group:
    """Group labels (N,); the order inside a class is the order in the batch.

    >>> group_by_class(np.array([7, 2, 7])).order.tolist()
    [1, 0, 2]
    """
    classes, sizes = np.unique(labels, return_counts=True)
    return Group(classes, sizes, np.argsort(labels, kind="stable"))


def split(group: Group, most: int) -> list[Group]:
    """The same points in rounds of at most `most` per class (a queue holds no more)."""
    if group.sizes.max(initial=0) <= most:
        return [group]
    starts = np.cumsum(group.sizes) - group.sizes
    index_in_class = np.arange(len(group.order)) - np.repeat(starts, group.sizes)
    owner = np.repeat(np.arange(len(group.classes)), group.sizes)
    rounds = []
    for start in range(0, int(group.sizes.max()), most):
        kept = (index_in_class >= start) & (index_in_class < start + most)
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
