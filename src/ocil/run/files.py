"""Files that are either there in full or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import Any

from ocil.errors import OcilError


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
        _sync_folder(target.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise cannot_write(path, error) from error


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere folders cannot be opened, and renames need no sync
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
