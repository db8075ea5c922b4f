"""Comparing files with what their publisher says of them."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import BinaryIO

from ocil.data.idx import open_plain_or_gzip
from ocil.data.source import SourceFile

_CHUNK = 1 << 20
_MOST_UNPACKED = 1 << 30


def stream_digest(stream: BinaryIO, kind: str) -> str:
    """Return the hex digest (md5 or sha256) of at most a gigabyte of a stream."""
    digest = hashlib.new(kind, usedforsecurity=False)
    left = _MOST_UNPACKED
    while left > 0 and (data := stream.read(min(_CHUNK, left))):
        digest.update(data)
        left -= len(data)
    return digest.hexdigest()


def checksum_problem(path: Path, file: SourceFile) -> str | None:
    """Return what differs from the published size and checksums, or None."""
    size = path.stat().st_size
    if size != file.size:
        return f"it has {size} bytes, expected {file.size}"
    for kind, expected in (("sha256", file.sha256), ("md5", file.md5)):
        if expected is None:
            continue
        with path.open("rb") as stream:
            found = stream_digest(stream, kind)
        if found != expected:
            return f"its {kind} is {found}, expected {expected}"
    return None


def unpacked_md5(path: Path) -> str | None:
    """Return the md5 of what is in a file, through gzip if it is one; None if it is damaged."""
    try:
        with open_plain_or_gzip(path) as stream:
            return stream_digest(stream, "md5")
    except (OSError, EOFError, zlib.error):
        return None


def is_published(path: Path, file: SourceFile) -> bool:
    """Tell whether a file is the published one, or the same content packed in another way."""
    if checksum_problem(path, file) is None:
        return True
    return file.unpacked_md5 is not None and unpacked_md5(path) == file.unpacked_md5
