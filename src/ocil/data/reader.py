"""What the readers share: images decoded chunk by chunk, and one sentence for any damage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ocil.data.sources import Source
from ocil.errors import OcilError, brief
from ocil.text import plain

PARTS = ("train", "test")
Chunk = tuple[np.ndarray, np.ndarray]  # images uint8 (k, C, H, W), labels int64 (k,)


class Damage(Exception):
    """What is wrong with a file's content, as a part of a sentence; never leaves this package."""


@contextmanager
def reading(path: Path, source: Source | None = None) -> Iterator[None]:
    """Turn any failure to read `path` into an OcilError that names the file and the remedy.

    Broken or hostile content can provoke any exception in the readers of numpy, Pillow, pyarrow
    and Python itself. Without a `source` the data are your own.
    """
    try:
        yield
    except (PermissionError, FileNotFoundError, IsADirectoryError) as error:
        remedy = "make it a file that you may read" if source else "check the path"
        what = path if source else plain(error.filename or path, 200)
        raise OcilError(f"Cannot read {what} ({error.strerror}); {remedy}.") from error
    except Exception as error:
        if type(error) is OcilError:  # a whole sentence; what is wrong with items names no file yet
            raise
        problem = plain(brief(error), 240)
        remedy = "; copy it again" if source else ""
        if source and source.files:
            remedy = f"; delete it and run `ocil data get {source.name}`, or copy it again"
        raise OcilError(f"{path} cannot be used: {problem}{remedy}.") from error


def integer_labels(values: list, classes: int) -> np.ndarray:
    """Labels as int64 (n,), or an error for what is no integer in 0..classes-1."""
    for value in values:
        if type(value) is not int or not 0 <= value < classes:
            raise Damage(f"label {str(value)[:40]!r} is not an integer in 0..{classes - 1}")
    return np.array(values, dtype=np.int64)
