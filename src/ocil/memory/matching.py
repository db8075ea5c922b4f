"""The same items again: which of those that are held somebody hands over once more."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Hashable, Sequence

from torch import Tensor


def mark(item: Tensor) -> bytes:
    """Equal for items of equal bytes."""
    raw = item.detach().cpu().contiguous().numpy().tobytes()
    return hashlib.blake2b(raw, digest_size=16).digest()


def find(
    held: Tensor, labels: Sequence[Hashable], x: Tensor, y: Sequence[Hashable]
) -> dict[int, int]:
    """Which of the held items (m, ...) with these labels is x[i] (n, ...) with label y[i]: {i: j}.

    Each held item is found once, the latest of equal ones first.

    >>> import torch
    >>> find(torch.tensor([[3], [5], [3]]), "aba", torch.tensor([[3], [5]]), "aa")
    {0: 2}
    """
    places: defaultdict[tuple[bytes, Hashable], list[int]] = defaultdict(list)
    for j, label in enumerate(labels):
        places[mark(held[j]), label].append(j)
    keys = ((mark(item), label) for item, label in zip(x, y, strict=True))
    return {i: places[key].pop() for i, key in enumerate(keys) if places.get(key)}
