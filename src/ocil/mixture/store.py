"""Named tensors with one row per class that grow by doubling."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ocil.errors import OcilError

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

    def __getitem__(self, name: str) -> Tensor:
        """A view of the rows in use."""
        return self.columns[name][: self.size]

    def host(self, name: str) -> NDArray[np.int64]:
        """A host column's rows as an array that shares their memory."""
        return self[name].numpy()

    def take(self, name: str, rows: Rows) -> Tensor:
        """Some rows (B, ...): a copy; of a slice a view, to be read before the next `put`."""
        column = self.columns[name]
        return column[rows] if isinstance(rows, slice) else column.index_select(0, rows)

    def put(self, name: str, rows: Rows, values: Tensor) -> None:
        """Write rows back."""
        if isinstance(rows, slice):
            self.columns[name][rows] = values
        else:
            self.columns[name].index_copy_(0, rows, values)

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the rows in use."""
        return {name: self[name].clone() for name in self.columns}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
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
        for name, column in self.columns.items():
            self.columns[name] = column[:0].clone()
        self.size = 0
        self.grow(size)
        for name, column in self.columns.items():
            column[:size] = state[name].to(column)
