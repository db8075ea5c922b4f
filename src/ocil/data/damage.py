"""From whatever a broken or hostile file provokes to one sentence with the remedy."""

from __future__ import annotations

import struct
import tarfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ocil.data.source import Source, printable
from ocil.errors import OcilError


class Damage(Exception):
    """What is wrong with a file's content, as a part of a sentence; never leaves this package."""


# All that content can provoke in the readers of numpy, Pillow, pyarrow and Python itself.
CONTENT_ERRORS = (
    Damage,
    EOFError,
    OSError,  # gzip, Pillow and pyarrow report bad content with it too
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    SyntaxError,  # numpy's headers are Python literals, and Pillow raises it too
    SystemError,  # pyarrow
    NotImplementedError,
    RuntimeError,
    MemoryError,
    tokenize.TokenError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
)


@contextmanager
def reading(source: Source, path: Path) -> Iterator[None]:
    """Turn any failure to read `path` into an OcilError that names the file and the remedy."""
    try:
        yield
    except (PermissionError, FileNotFoundError, IsADirectoryError) as error:
        raise OcilError(
            f"Cannot read {path} ({error.strerror}); make it a file that you may read."
        ) from error
    except CONTENT_ERRORS as error:
        problem = printable(error or type(error).__name__, 240).rstrip(".")
        again = f"delete it and run `ocil data get {source.name}`" if source.files else ""
        remedy = f"{again}, or copy it again" if again else "copy it again"
        raise OcilError(f"{path} cannot be used: {problem}; {remedy}.") from error


@contextmanager
def reading_own(path: Path) -> Iterator[None]:
    """The same for data of your own."""
    try:
        yield
    except (PermissionError, FileNotFoundError, IsADirectoryError) as error:
        what = printable(error.filename or path, 200)
        raise OcilError(f"Cannot read {what} ({error.strerror}); check the path.") from error
    except CONTENT_ERRORS as error:
        problem = printable(error or type(error).__name__, 240).rstrip(".")
        raise OcilError(f"{path} cannot be used: {problem}.") from error
