"""What a reader of compressed images hands on: chunks of decoded images, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

# images uint8 (k, C, H, W), labels int64 (k,)
Chunk = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Decoder:
    """Both sets of a data set, to be decoded chunk by chunk, as often as it is asked."""

    train: Callable[[], Iterator[Chunk]]
    test: Callable[[], Iterator[Chunk]]
    class_names: tuple[str, ...]


def integer_labels(values: list, classes: int) -> np.ndarray:
    """Return labels as int64 (n,), or raise ValueError for what is no integer in 0..classes-1."""
    for value in values:
        if type(value) is not int or not 0 <= value < classes:
            raise ValueError(f"label {str(value)[:40]!r} is not an integer in 0..{classes - 1}")
    return np.array(values, dtype=np.int64)
