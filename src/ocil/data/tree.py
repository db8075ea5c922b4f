"""Many small files, in a folder or in a zip that is read in place, with limits on both.

Files are named relative to the root, with forward slashes.
"""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

from ocil.data.reader import Damage
from ocil.files import open_plain
from ocil.text import plain

MAX_FILES = 400_000
MAX_BYTES = 4 << 30  # unpacked, all files together


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
            _refuse_strange(member)
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
        raise Damage(f"{plain(member.filename, 80)} in it has not the announced size")
    return data


def _refuse_strange(member: zipfile.ZipInfo) -> None:
    name = plain(member.filename, 80)
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
