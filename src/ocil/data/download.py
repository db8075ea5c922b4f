"""Fetching published files: resumable, checked, atomic, one process at a time. Only when asked.

A file grows as NAME.part, is compared with its published checksum and only then gets its name.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import logging
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocil.data.check import checksum_problem, is_published
from ocil.data.find import find, require, roots
from ocil.data.sources import Source, SourceFile, named
from ocil.errors import OcilError
from ocil.files import locked
from ocil.text import plain

Progress = Callable[[str, int, int], None]  # file name, bytes so far, bytes in all

_CHUNK = 1 << 18
_MAX_TRIES = 3  # of one address, as long as it keeps sending
_TIMEOUT = 30.0  # seconds without a byte
_LOCK_SECONDS = 3600.0

logger = logging.getLogger(__name__)


class _Refused(Exception):
    """One address did not give the file; its text says why."""


class _Cut(Exception):
    """The connection failed or ended early; asking again may help."""


def get(name: str, data_dir: Path | None = None, progress: Progress | None = None) -> Path | None:
    """Fetch a data set unless it is there, and return its folder; None if it is bundled.

    It goes into `data_dir`, or else into the first of $OCIL_DATA and the user's cache that can be
    written.
    """
    source = named(name)
    if source.layout == "bundled":
        return None
    if not source.files:
        return require(source, data_dir).folder  # says which files to put where
    found = find(source, data_dir)
    if found and not found.missing:
        return found.folder
    searched = roots(data_dir)
    root = next((root for root in searched if _is_writable(root / name)), searched[-1])
    return fetch(source, root, progress)


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or the folder itself in what exists above it."""
    there = next(place for place in (folder, *folder.parents) if place.exists())
    return there.is_dir() and os.access(there, os.W_OK)


def fetch(
    source: Source, root: Path, progress: Progress | None = None, timeout: float = _TIMEOUT
) -> Path:
    """Bring the files of a source into ROOT/NAME and return that folder.

    Files that are there and as published are left alone; a part of a file is continued.
    """
    folder = root / source.name
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    busy = OcilError(
        f"Another process has been fetching into {folder} for {_LOCK_SECONDS:.0f} seconds; "
        "wait for it or end it."
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, "Permission denied")
        with locked(folder / ".lock", busy, _LOCK_SECONDS):
            for file in source.files:
                _fetch_file(source, _Transfer(file, folder / file.name, progress, timeout))
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = f"free {source.size / 1e6:.0f} MB there" if full else "make it a writable folder"
        raise OcilError(
            f"Cannot write {source.name} into {folder} ({error.strerror or error}); "
            f"{remedy}, or give another with --data-dir."
        ) from error
    finally:
        for place in made:  # those that are still empty
            with contextlib.suppress(OSError):
                place.rmdir()
    return folder


def _fetch_file(source: Source, transfer: _Transfer) -> None:
    """Leave the published file alone where it is; otherwise try one address after the other."""
    file, target = transfer.file, transfer.target
    if target.exists():
        if not is_published(target, file):
            raise OcilError(
                f"{target} is not the published file; "
                f"move it away and run `ocil data get {source.name}` again."
            )
        return
    reasons = []
    for url in file.urls:
        try:
            return transfer.fetch_from(url)
        except _Refused as error:
            logger.info("%s: %s", url, error)
            reasons.append(f"{urllib.parse.urlsplit(url).hostname}: {error}")
    raise OcilError(
        f"Could not download {file.name} ({'; '.join(reasons)}); "
        f"try again with a network, or {source.by_hand(target.parent)}."
    )


@dataclass(frozen=True)
class _Transfer:
    """One file on its way to `target`."""

    file: SourceFile
    target: Path
    progress: Progress | None
    timeout: float

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part")

    @property
    def size(self) -> int:
        """Bytes that have arrived."""
        return self.part.stat().st_size if self.part.exists() else 0

    def fetch_from(self, url: str) -> None:
        """Try one address: continue what is there, start anew once if the result is wrong."""
        resumed = self.part.exists()
        while True:
            self._complete(url)
            problem = checksum_problem(self.part, self.file)
            if problem is None:
                break
            self.part.unlink()
            if not resumed:
                raise _Refused(problem)
            resumed = False  # what was there before may have been the wrong part
        with self.part.open("rb") as stream:
            os.fsync(stream.fileno())
        self.part.replace(self.target)

    def _complete(self, url: str) -> None:
        """Append to `part` until it has the published size; go on after a cut while bytes come."""
        for attempt in range(_MAX_TRIES):
            if self.size > self.file.size:
                self.part.unlink()
            before, reason = self.size, "the connection was cut"
            try:
                if before < self.file.size:
                    self._receive(url)
            except _Cut as error:
                reason = str(error)
            now = self.size
            if now == self.file.size:
                return
            if now <= before or attempt == _MAX_TRIES - 1:
                raise _Refused(f"{reason} after {now} of {self.file.size} bytes" if now else reason)

    def _receive(self, url: str) -> None:
        """Ask for what `part` lacks and write what comes."""
        start = self.size
        headers = {"User-Agent": "ocil", "Accept-Encoding": "identity"}
        headers |= {"Range": f"bytes={start}-"} if start else {}
        request = urllib.request.Request(url, headers=headers)
        try:
            answer = urllib.request.urlopen(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 416:  # what is there cannot be continued: begin anew next time
                self.part.unlink(missing_ok=True)
            raise _Refused(f"the server answers {error.code} {plain(error.reason, 80)}") from error
        except (OSError, http.client.HTTPException) as error:
            raise _Cut(plain(getattr(error, "reason", error), 80)) from error
        with answer:
            if not (answer.status == 206 and _range_start(answer) == start):
                start = 0  # the server sends everything again
            expected, announced = self.file.size - start, answer.headers.get("Content-Length")
            if announced is not None and announced.strip() != str(expected):
                raise _Refused(f"it has {plain(announced, 80)} bytes, expected {expected}")
            with self.part.open("ab" if start else "wb") as stream:
                self._copy(answer, stream, start)

    def _copy(self, answer: Any, stream: Any, done: int) -> None:
        while done < self.file.size:
            try:
                data = answer.read(min(_CHUNK, self.file.size - done))
            except (OSError, http.client.HTTPException) as error:  # not to be taken for a full disk
                raise _Cut(plain(str(error) or type(error).__name__, 80)) from error
            if not data:
                return
            stream.write(data)
            done += len(data)
            if self.progress:
                self.progress(self.file.name, done, self.file.size)


def _range_start(answer: Any) -> int | None:
    """Where the bytes of a partial answer begin ("bytes 100-199/200" -> 100)."""
    given = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(given) if given.isascii() and given.isdigit() else None
