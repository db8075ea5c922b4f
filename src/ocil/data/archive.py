"""Files within folders, zip and tar archives, which are read in place and within limits.

Members are named relative to the root, with forward slashes. Links, devices and names that point
outside are refused.
"""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from ocil.data.reader import Damage
from ocil.files import open_plain
from ocil.text import plain

MAX_FILES = 400_000
MAX_BYTES = 4 << 30  # unpacked, all files together
MAX_TAR_BYTES = 512 << 20  # the same of a tar archive
MAX_TAR_FILES = 100
MAX_MEMBER_BYTES = 256 << 20  # of one file in it


class FolderTree:
    """The files below a folder; links inside it are refused."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """Walk the folder; raises for a link or for too many files."""
        found: list[str] = []
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            with os.scandir(self.path / prefix) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        raise Damage(f"{plain(prefix + entry.name, 80)} in it is a link")
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{prefix}{entry.name}/")
                    elif not entry.is_file(follow_symlinks=False):
                        raise Damage(f"{plain(prefix + entry.name, 80)} in it is no regular file")
                    else:
                        found.append(prefix + entry.name)
            if len(found) > MAX_FILES:
                raise Damage(f"it holds more than {MAX_FILES} files")
        return found

    def read(self, name: str, limit: int) -> bytes:
        """The content of a file of at most `limit` bytes."""
        with open_plain(self.path / name) as stream:
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise Damage(f"{plain(name, 80)} in it is larger than {limit} bytes")
        return data


class ZipTree:
    """The members of a zip archive, checked when it is opened, never unpacked to disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip = zipfile.ZipFile(path)
        members = self._zip.infolist()
        if len(members) > MAX_FILES:
            raise Damage(f"it holds {len(members)} members, at most {MAX_FILES} are read")
        total = sum(member.file_size for member in members)
        if total > MAX_BYTES:
            raise Damage(f"it unpacks to {total} bytes, at most {MAX_BYTES} are read")
        for member in members:
            packed = member.compress_type
            known = packed in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            problems = {"has no name": not member.filename, "is encrypted": member.flag_bits & 1}
            problems["is a link"] = stat.S_ISLNK(member.external_attr >> 16)
            _refuse(member.filename, problems | {f"is packed with method {packed}": not known})
        self._members = {member.filename: member for member in members if not member.is_dir()}

    def names(self) -> list[str]:
        return list(self._members)

    def read(self, name: str, limit: int) -> bytes:
        """The content of a member; its size is checked both as announced and as found."""
        member = self._members[name]
        if member.file_size > limit:
            raise Damage(f"{plain(name, 80)} in it is larger than {limit} bytes")
        return read_member(self._zip, member)


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The content of a member; no more is unpacked than is announced."""
    with archive.open(member) as stream:
        data = stream.read(member.file_size + 1)
    if len(data) != member.file_size:
        raise Damage(f"{plain(member.filename, 80)} in it does not have the announced size")
    return data


def _refuse(name: str, problems: Mapping[str, object]) -> None:
    """Raise for a member that points outside its archive or has one of these problems."""
    outside = name.startswith("/") or ".." in name.split("/") or "\\" in name
    for problem, found in {"points outside the archive": outside, **problems}.items():
        if found:
            raise Damage(f"member {plain(name, 80)} {problem}")


def open_plain_or_gzip(path: Path) -> BinaryIO:
    """Open a file for reading, through gzip if it starts like one, whatever its name."""
    with open_plain(path) as stream:
        zipped = stream.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path, "rb")) if zipped else path.open("rb")


class _Limited:
    """A stream that stops an archive from unpacking to more than it may."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = MAX_TAR_BYTES

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise Damage(f"it unpacks to more than {MAX_TAR_BYTES} bytes")
        return data


def tar_members(path: Path, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The wanted members of a tar archive, plain or gzip, in one pass, without unpacking."""
    with open_plain_or_gzip(path) as stream:
        limited = cast(BinaryIO, _Limited(stream))
        with tarfile.open(fileobj=limited, mode="r|") as archive:
            for count, member in enumerate(archive):
                if count >= MAX_TAR_FILES:
                    raise Damage(f"it holds more than {MAX_TAR_FILES} members")
                too_large = f"has {member.size} bytes, at most {MAX_MEMBER_BYTES} are read"
                problems = {"is a link or a device": not (member.isfile() or member.isdir())}
                _refuse(member.name, problems | {too_large: member.size > MAX_MEMBER_BYTES})
                folder, _, name = member.name.removeprefix("./").rpartition("/")
                if member.isfile() and name in names and "/" not in folder:
                    content = archive.extractfile(member)
                    data = content.read() if content else b""
                    if len(data) != member.size:
                        raise Damage(f"it ends within {name}")
                    yield name, data
        while limited.read(1 << 20):  # the sum of a gzip file stands at its end
            pass
