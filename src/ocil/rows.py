"""Tensors with one row for each class."""

from __future__ import annotations

import torch
from torch import Tensor


def without(rows: Tensor, label: int, dim: int = 0) -> Tensor:
    """Rows without that of a class, if they have one; those after it move up.

    >>> without(torch.tensor([5, 6, 7]), 1).tolist()
    [5, 7]
    """
    after = rows.shape[dim] - label - 1
    if after < 0:
        return rows
    return torch.cat([rows.narrow(dim, 0, label), rows.narrow(dim, label + 1, after)], dim)
