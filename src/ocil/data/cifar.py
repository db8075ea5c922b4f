"""CIFAR-10 and CIFAR-100 as first published: python batches, in a folder or a tar archive."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from ocil.data.find import Found
from ocil.data.reader import Chunk, Damage, Decoder, integer_labels, open_plain_or_gzip, reading
from ocil.data.sources import Source
from ocil.data.unpickle import PickledArray, read_plain_pickle
from ocil.text import plain

_MAX_MEMBER_BYTES = 256 << 20
_MAX_ARCHIVE_BYTES = 512 << 20  # unpacked
_MAX_MEMBERS = 100


def read_batches(source: Source, found: Found) -> Decoder:
    """The batches in a folder or in an archive, in the order of their names."""

    def chunks(part: str) -> Iterator[Chunk]:
        names = [n for n in source.member_md5 if n.startswith("test") == (part == "test")]
        limit = source.images(part) // len(names)
        if found.form == "tar":
            (path,) = found.paths.values()
            yield from _from_tar(source, path, names, limit)
        else:
            for name in names:
                yield _from_file(source, found.paths[name], limit)

    return Decoder(source.class_names, chunks)


def _from_file(source: Source, path: Path, limit: int) -> Chunk:
    with reading(path, source):
        with path.open("rb") as stream:
            data = stream.read(_MAX_MEMBER_BYTES + 1)
        if len(data) > _MAX_MEMBER_BYTES:
            raise Damage(f"it is larger than {_MAX_MEMBER_BYTES} bytes")
        return _read_batch(source, data, limit)


def _from_tar(source: Source, path: Path, names: list[str], limit: int) -> Iterator[Chunk]:
    chunks: dict[str, Chunk] = {}
    with reading(path, source):
        for name, data in _tar_members(path, names):
            try:
                chunks[name] = _read_batch(source, data, limit)
            except Damage as error:
                raise Damage(f"in {name}, {error}") from error
        missing = [name for name in names if name not in chunks]
        if missing:
            raise Damage(f"it lacks {' and '.join(missing)}")
    for name in names:  # the order in the archive is another one
        yield chunks.pop(name)


def _read_batch(source: Source, data: bytes, limit: int) -> Chunk:
    """Images (n, 3, 32, 32) and labels (n,) of one pickled batch."""
    batch = read_plain_pickle(data)
    array = batch.get("data")
    labels = batch.get("fine_labels" if source.classes == 100 else "labels")
    if not isinstance(array, PickledArray) or not isinstance(labels, list):
        raise Damage("it has no data and labels")
    channels, height, width = source.shape
    rows = array.rows(channels * height * width)
    if not 0 < len(rows) <= limit:
        raise Damage(f"it holds {len(rows)} images, expected 1 to {limit}")
    if len(labels) != len(rows):
        raise Damage(f"it holds {len(labels)} labels for {len(rows)} images")
    return rows.reshape(-1, *source.shape), integer_labels(labels, source.classes)


class _Limited:
    """A stream that stops an archive from unpacking to more than it may."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = _MAX_ARCHIVE_BYTES

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise Damage(f"it unpacks to more than {_MAX_ARCHIVE_BYTES} bytes")
        return data


def _tar_members(path: Path, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """The wanted members of a tar archive, plain or gzip, in one pass, without unpacking."""
    with open_plain_or_gzip(path) as stream:
        limited = cast(BinaryIO, _Limited(stream))
        with tarfile.open(fileobj=limited, mode="r|") as archive:
            for count, member in enumerate(archive):
                _refuse_strange(member, count)
                folder, _, name = member.name.removeprefix("./").rpartition("/")
                if member.isfile() and name in names and "/" not in folder:
                    content = archive.extractfile(member)
                    data = content.read() if content else b""
                    if len(data) != member.size:
                        raise Damage(f"it ends within {name}")
                    yield name, data
        while limited.read(1 << 20):  # the sum of a gzip file stands at its end
            pass


def _refuse_strange(member: tarfile.TarInfo, count: int) -> None:
    name = plain(member.name, 80)
    if count >= _MAX_MEMBERS:
        raise Damage(f"it holds more than {_MAX_MEMBERS} members")
    if not (member.isfile() or member.isdir()):
        raise Damage(f"member {name} is a link or a device")
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise Damage(f"member {name} points outside the archive")
    if member.size > _MAX_MEMBER_BYTES:
        raise Damage(f"member {name} has {member.size} bytes, at most {_MAX_MEMBER_BYTES} are read")
