"""Files that are either there in full or not at all, and written by one process at a time.

A process that writes holds a lock of the operating system, which it gives back however it ends. The
file of the lock lies beside what it guards (.lock in a run's folder, .NAME.lock beside a model) and
is removed with the lock. What is read is a regular file of a bounded size: a pipe with a name would
make its reader wait for ever, and a device may never end.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ocil.errors import OcilError, brief

NOT_REGULAR = "it is no regular file"
MAX_BYTES = 1 << 30  # bytes of a file that is read whole, unless its format says less
MAX_TOML_BYTES = 1 << 20
WAIT = 10.0  # seconds that a second writer of a file waits for the first


def write_atomic(path: Path, content: bytes) -> None:
    """Write to a temporary name, sync, rename, sync the folder.

    A kill at any moment leaves the old file or the new one; a full disk leaves the old one. A link
    keeps pointing to what is replaced, the file keeps who may read it, and what is no plain file
    (/dev/null) is written to as it is.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not (target.is_file() or target.is_dir()):
            target.write_bytes(content)
            return
        with open(temporary, "wb") as file:
            if target.is_file():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        if os.name == "posix":  # elsewhere folders cannot be opened, and renames need no sync
            handle = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def remove_leftovers(path: Path) -> None:
    """Remove what killed calls of `write_atomic` left of a file; its lock must be held."""
    target = Path(os.path.realpath(path))
    start, end = f".{target.name}.", ".tmp"
    for file in target.parent.iterdir():
        middle = file.name[len(start) : -len(end)]
        if file.name == f"{start}{middle}{end}" and middle.isdecimal():
            with contextlib.suppress(OSError):
                file.unlink()


@contextlib.contextmanager
def locked(lock: Path, refused: OcilError, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock; after `wait` seconds in which another process holds it, raise `refused`."""
    from filelock import FileLock, Timeout

    held = FileLock(lock, timeout=wait)
    try:
        held.acquire()
    except Timeout:
        raise refused from None
    except OSError as error:
        raise cannot_write(lock.parent, error) from error
    try:
        yield
    finally:
        if os.name == "posix":  # elsewhere releasing removes it
            # Who waits for a removed file notices it and begins anew (filelock 4).
            with contextlib.suppress(OSError):
                lock.unlink()
        held.release()


@contextlib.contextmanager
def writing(path: Path, wait: float = WAIT) -> Iterator[None]:
    """Be the only writer of a file from before it is read until it is written."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # /dev/null, or a folder by mistake
        yield
        return
    refused = OcilError(
        f"Another process is writing {path} and was not done after {wait:g} seconds; try again "
        "later, or wait longer with --wait."
    )
    with locked(target.with_name(f".{target.name}.lock"), refused, wait):
        remove_leftovers(target)
        yield


def cannot_write(path: Path, error: OSError) -> OcilError:
    reason = error.strerror or str(error)
    return OcilError(
        f"Cannot write {path}: {reason}. Free some space or choose another folder; "
        "what was saved before is intact."
    )


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error


def open_plain(path: Path) -> BinaryIO:
    """Open a regular file for reading; anything else is an OSError that says so."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
    return os.fdopen(handle, "rb")


def read_plain(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file of at most `limit` bytes."""
    try:
        with open_plain(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size > limit:
                raise OcilError(f"Cannot read {path}: {size} bytes, at most {limit} are read.")
            return stream.read(size)
    except OSError as error:
        raise OcilError(f"Cannot read {path}: {error.strerror}.") from error


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain data, or one sentence on what is wrong with it."""
    try:
        return tomllib.loads(read_plain(path, MAX_TOML_BYTES).decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits
        raise OcilError(f"{path} is not valid TOML: {brief(error)}.") from error
