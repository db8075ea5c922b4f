"""Opening files that others may have put there: only regular ones, and never more than expected.

A pipe with a name would make its reader wait for ever, and a device may never end.
"""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

from ocil.errors import OcilError

NOT_REGULAR = "it is no regular file"
MOST = 1 << 30  # bytes of a file that is read whole, unless its format says less
TOML_BYTES = 1 << 20


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading; anything else is an OSError that says so."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
    return os.fdopen(handle, "rb")


def read_plain(path: Path, most: int = MOST) -> bytes:
    """The content of a regular file of at most `most` bytes, or an OSError."""
    with open_plain(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            told = f"it has {size} bytes, at most {most} are read"
            raise OSError(errno.EFBIG, told, str(path))
        return stream.read(size)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain data, or one sentence on what is wrong with it."""
    try:
        return tomllib.loads(read_plain(path, TOML_BYTES).decode("utf-8"))
    except OSError as error:
        raise OcilError(f"Cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        problem = " ".join(str(error).split())[:200].rstrip(".")
        raise OcilError(f"{path} is not valid TOML: {problem}.") from error
