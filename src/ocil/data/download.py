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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ocil.data.checksums import checksum_problem, is_published
from ocil.data.source import Source, SourceFile, printable
from ocil.errors import OcilError

Progress = Callable[[str, int, int], None]  # file name, bytes so far, bytes in all

_CHUNK = 1 << 18
_TRIES = 3  # of one address, as long as it keeps sending
_TIMEOUT = 30.0  # seconds without a byte
_LOCK_SECONDS = 3600.0
_LOCK = ".lock"

logger = logging.getLogger(__name__)


class _Refused(Exception):
    """One address did not give the file; its text says why."""


class _Cut(Exception):
    """The connection failed or ended early; asking again may help."""


def fetch(
    source: Source, root: Path, progress: Progress | None = None, timeout: float = _TIMEOUT
) -> Path:
    """Bring the files of a source into ROOT/NAME and return that folder.

    Files that are there and as published are left alone; a part of a file is continued.
    """
    folder = root / source.name
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        with _locked(folder):
            try:
                for file in source.files:
                    _fetch_file(source, file, folder, progress, timeout)
            except OcilError:
                _tidy(folder, made)
                raise
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = f"free {source.size / 1e6:.0f} MB there" if full else "make it a writable folder"
        raise OcilError(
            f"Cannot write {source.name} into {folder} ({error.strerror or error}); "
            f"{remedy}, or give another with --data-dir."
        ) from error
    return folder


def _tidy(folder: Path, made: list[Path]) -> None:
    """After a failure: no lock beside nothing, and no empty folders that were made for it."""
    if [path.name for path in folder.iterdir()] == [_LOCK]:
        (folder / _LOCK).unlink()
        for place in made:
            with contextlib.suppress(OSError):  # something else has come to lie there
                place.rmdir()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(folder / _LOCK, timeout=_LOCK_SECONDS)
    try:
        while not (folder / _LOCK).exists() or not lock.is_locked:
            lock.release()  # of a file that another process has tidied away while we waited
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()
    except Timeout as error:
        raise OcilError(
            f"Another process has been fetching into {folder} for {_LOCK_SECONDS:.0f} seconds; "
            "wait for it or end it."
        ) from error


def _fetch_file(
    source: Source, file: SourceFile, folder: Path, progress: Progress | None, timeout: float
) -> None:
    target = folder / file.name
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
            _fetch_from(url, file, target, progress, timeout)
            return
        except _Refused as error:
            logger.info("%s: %s", url, error)
            reasons.append(f"{urllib.parse.urlsplit(url).hostname}: {error}")
    raise OcilError(
        f"Could not download {file.name} ({'; '.join(reasons)}); "
        f"try again with a network, or {source.by_hand(folder)}."
    )


def _fetch_from(
    url: str, file: SourceFile, target: Path, progress: Progress | None, timeout: float
) -> None:
    """Try one address: continue what is there, start anew once if the result is wrong."""
    part = target.with_name(f"{target.name}.part")
    resumed = part.exists()
    while True:
        _download(url, file, part, progress, timeout)
        problem = checksum_problem(part, file)
        if problem is None:
            break
        part.unlink()
        if not resumed:
            raise _Refused(problem)
        resumed = False  # what was there before may have been the wrong part
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    part.replace(target)


def _download(
    url: str, file: SourceFile, part: Path, progress: Progress | None, timeout: float
) -> None:
    """Append to `part` until it has the published size; go on after a cut while bytes arrive."""
    for attempt in range(_TRIES):
        before = _size(part)
        if before > file.size:
            part.unlink()
            before = 0
        reason = "the connection was cut"
        try:
            if before < file.size:
                _receive(url, file, part, progress, timeout)
        except _Cut as error:
            reason = str(error)
        now = _size(part)
        if now == file.size:
            return
        if now <= before or attempt == _TRIES - 1:
            raise _Refused(f"{reason} after {now} of {file.size} bytes" if now else reason)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _receive(
    url: str, file: SourceFile, part: Path, progress: Progress | None, timeout: float
) -> None:
    """Ask for what `part` lacks and write what comes."""
    start = _size(part)
    request = urllib.request.Request(
        url, headers={"User-Agent": "ocil", "Accept-Encoding": "identity"}
    )
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        answer = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416:  # what is there cannot be continued: begin anew next time
            part.unlink(missing_ok=True)
        raise _Refused(f"the server answers {error.code} {printable(error.reason)}") from error
    except (OSError, http.client.HTTPException) as error:
        raise _Cut(printable(getattr(error, "reason", error))) from error
    with answer:
        if not (answer.status == 206 and _range_start(answer) == start):
            start = 0  # the server sends everything again
        announced = answer.headers.get("Content-Length")
        if announced is not None and announced.strip() != str(file.size - start):
            raise _Refused(f"it has {printable(announced)} bytes, expected {file.size - start}")
        with part.open("ab" if start else "wb") as stream:
            _copy(answer, stream, file, start, progress)


def _copy(answer: Any, stream: Any, file: SourceFile, done: int, progress: Progress | None) -> None:
    while done < file.size:
        try:
            data = answer.read(min(_CHUNK, file.size - done))
        except (OSError, http.client.HTTPException) as error:  # not to be taken for a full disk
            raise _Cut(printable(error or type(error).__name__)) from error
        if not data:
            return
        stream.write(data)
        done += len(data)
        if progress:
            progress(file.name, done, file.size)


def _range_start(answer: Any) -> int | None:
    """Return where the bytes of a partial answer begin ("bytes 100-199/200" -> 100)."""
    given = answer.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(given) if given.isascii() and given.isdigit() else None
