"""Turned views of images whose turn is part of what is to be learned (OCM, OnPro)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ocil.errors import OcilError

TURNS = 16  # four ways to turn the halves times four quarter turns of the whole


def turns(x: Tensor) -> Tensor:
    """All 16 turns of images x (n, C, H, H) -> (16, n, C, H, H), the images themselves first.

    Number 4 q + k: the halves {none, left, both, right}[k] of the width are turned by 180 degrees
    each in its place, then the whole image by q quarter turns.

    >>> x = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> turns(x)[:5, 0, 0].flatten(1).tolist()  # whole; left, both, right half; quarter turn
    [[1, 2, 3, 4], [3, 2, 1, 4], [3, 4, 1, 2], [1, 4, 3, 2], [2, 4, 1, 3]]
    """
    middle = x.shape[-1] // 2
    left, right = x[..., :middle], x[..., middle:]
    turned_left, turned_right = (half.flip((-2, -1)) for half in (left, right))
    halves = torch.stack(
        [
            x,
            torch.cat([turned_left, right], -1),
            torch.cat([turned_left, turned_right], -1),
            torch.cat([left, turned_right], -1),
        ]
    )  # (4, n, C, H, H)
    return torch.cat([halves.rot90(quarter, (-2, -1)) for quarter in range(4)])


def check(method: str, shape: Sequence[int]) -> None:
    """Raise OcilError if items of this shape cannot be turned by 90 degrees."""
    if len(shape) != 3 or shape[1] != shape[2]:
        raise OcilError(
            f"{method} learns from images turned by 90 degrees and needs square ones (channels, "
            f"side, side), but the items have shape {tuple(shape)}; pad them or choose er."
        )
