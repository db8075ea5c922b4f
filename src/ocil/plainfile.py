"""Opening files that others may have put there: only regular ones, and never more than expected.

A pipe with a name would make its reader wait for ever, and a device may never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

NOT_REGULAR = "it is no regular file"
MOST = 1 << 30  # bytes of a file that is read whole, unless its format says less


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
