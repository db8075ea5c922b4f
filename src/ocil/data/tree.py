"""Many small files, in a folder or in a zip that is read in place, with limits on both."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path
from typing import Protocol

from ocil.data.damage import Damage
from ocil.data.source import printable
from ocil.files import open_plain

MOST_FILES = 400_000
MOST_BYTES = 4 << 30  # unpacked, all files together


class Tree(Protocol):
    """Read-only files by their name relative to the root, with forward slashes."""

    path: Path

    def names(self) -> list[str]:
        """Return the names of all regular files."""
        ...

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file of at most `limit` bytes."""
        ...


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
                        raise Damage(f"{printable(prefix + entry.name)} in it is a link")
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{prefix}{entry.name}/")
                    elif not entry.is_file(follow_symlinks=False):
                        raise Damage(f"{printable(prefix + entry.name)} in it is no regular file")
                    else:
                        found.append(prefix + entry.name)
            if len(found) > MOST_FILES:
                raise Damage(f"it holds more than {MOST_FILES} files")
        return found

    def read(self, name: str, limit: int) -> bytes:
        """Read one file."""
        with open_plain(self.path / name) as stream:
            data = stream.read(limit + 1)
        if len(data) > limit:
            raise Damage(f"{printable(name)} in it is larger than {limit} bytes")
        return data


class ZipTree:
    """The members of a zip archive, checked when it is opened, never unpacked to disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip = zipfile.ZipFile(path)
        members = self._zip.infolist()
        if len(members) > MOST_FILES:
            raise Damage(f"it holds {len(members)} members, at most {MOST_FILES} are read")
        total = sum(member.file_size for member in members)
        if total > MOST_BYTES:
            raise Damage(f"it unpacks to {total} bytes, at most {MOST_BYTES} are read")
        for member in members:
            _refuse_strange(member)
        self._members = {member.filename: member for member in members if not member.is_dir()}

    def names(self) -> list[str]:
        """Return the names of the file members."""
        return list(self._members)

    def read(self, name: str, limit: int) -> bytes:
        """Read one member; the size is checked both as announced and as found."""
        member = self._members[name]
        if member.file_size > limit:
            raise Damage(f"{printable(name)} in it is larger than {limit} bytes")
        return read_member(self._zip, member)


def read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The content of a member; no more is unpacked than is announced."""
    with archive.open(member) as stream:
        data = stream.read(member.file_size + 1)
    if len(data) != member.file_size:
        raise Damage(f"{printable(member.filename)} in it has not the announced size")
    return data


def _refuse_strange(member: zipfile.ZipInfo) -> None:
    name = printable(member.filename)
    if not member.filename:
        raise Damage("a member has no name")
    parts = member.filename.split("/")
    if ".." in parts or member.filename.startswith("/") or "\\" in member.filename:
        raise Damage(f"member {name} points outside the archive")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise Damage(f"member {name} is a link")
    if member.flag_bits & 1:
        raise Damage(f"member {name} is encrypted")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Damage(f"member {name} is packed with method {member.compress_type}")
