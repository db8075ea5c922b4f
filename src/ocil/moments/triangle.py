"""A sum of outer products, of which only the lower triangle is held."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

SIDE = 128  # rows that are held together


class Triangle:
    """G = sum_i x_i x_i' (d, d) in float32, held as rows a to b of its columns 0 to b.

    So an update costs half of what the whole takes, in bytes and in products.

    >>> g = Triangle(2)
    >>> g.add(torch.tensor([[1.0, 2.0]]))
    >>> g.whole().tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """

    def __init__(self, dim: int, device: torch.device | str = "cpu") -> None:
        self.dim = dim
        self.edges = [(a, min(a + SIDE, dim)) for a in range(0, dim, SIDE)]
        self.packed = torch.zeros(sum((b - a) * b for a, b in self.edges), device=device)

    def _rows(self) -> Iterator[tuple[int, int, Tensor]]:
        at = 0
        for a, b in self.edges:
            yield a, b, self.packed[at : at + (b - a) * b].view(b - a, b)
            at += (b - a) * b

    def add(self, x: Tensor) -> None:
        """Add the outer products of x (n, d)."""
        for a, b, rows in self._rows():
            rows.addmm_(x[:, a:b].T, x[:, :b])

    def add_whole(self, g: Tensor) -> None:
        """Add a symmetric matrix (d, d)."""
        for a, b, rows in self._rows():
            rows += g[a:b, :b]

    def whole(self) -> Tensor:
        """(d, d) in float64."""
        found = torch.empty(self.dim, self.dim, dtype=torch.float64, device=self.packed.device)
        for a, b, rows in self._rows():
            found[a:b, :b] = rows
            found[:a, a:b] = rows[:, :a].T
        return found

    def trace(self) -> float:
        return sum(float(rows[:, a:].diagonal().sum()) for a, _, rows in self._rows())

    def copy(self) -> Triangle:
        other = Triangle(self.dim, self.packed.device)
        other.packed.copy_(self.packed)
        return other
