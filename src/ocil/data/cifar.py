"""CIFAR-10 and CIFAR-100 as first published: python batches, in a folder or a tar archive."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from ocil.data.damage import Damage, reading
from ocil.data.decoder import Chunk, Decoder, integer_labels
from ocil.data.idx import open_plain_or_gzip
from ocil.data.places import Found
from ocil.data.source import Source, printable
from ocil.data.unpickle import PickledArray, read_plain_pickle

_MEMBER_BYTES = 256 << 20
_ARCHIVE_BYTES = 512 << 20  # unpacked
_MOST_MEMBERS = 100
_CHUNK = 1 << 20


def batches_decoder(source: Source, found: Found) -> Decoder:
    """Return the decoder of the batches in a folder or in an archive."""
    test = tuple(name for name in source.member_md5 if name.startswith("test"))
    train = tuple(name for name in source.member_md5 if name not in test)

    def decode(names: tuple[str, ...], limit: int) -> Iterator[Chunk]:
        if found.form == "tar":
            return _from_tar(source, found.paths["archive"], names, limit)
        return _from_folder(source, [found.paths[name] for name in names], limit)

    return Decoder(
        train=lambda: decode(train, source.train),
        test=lambda: decode(test, source.test),
        class_names=source.class_names,
    )


def _from_folder(source: Source, paths: list[Path], limit: int) -> Iterator[Chunk]:
    for path in paths:
        with reading(source, path):
            with path.open("rb") as stream:
                data = stream.read(_MEMBER_BYTES + 1)
            if len(data) > _MEMBER_BYTES:
                raise Damage(f"it is larger than {_MEMBER_BYTES} bytes")
            chunk = read_batch(source, data, limit // len(paths))
        yield chunk


def _from_tar(source: Source, path: Path, names: tuple[str, ...], limit: int) -> Iterator[Chunk]:
    chunks: dict[str, Chunk] = {}
    with reading(source, path):
        for name, data in tar_members(path, names):
            try:
                chunks[name] = read_batch(source, data, limit // len(names))
            except Damage as error:
                raise Damage(f"in {name}, {error}") from error
        missing = [name for name in names if name not in chunks]
        if missing:
            raise Damage(f"it lacks {' and '.join(missing)}")
    for name in names:  # the order in the archive is another one
        yield chunks.pop(name)


def read_batch(source: Source, data: bytes, limit: int) -> Chunk:
    """Return images (n, 3, 32, 32) and labels (n,) of one pickled batch."""
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
        self._left = _ARCHIVE_BYTES

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(data)
        if self._left < 0:
            raise Damage(f"it unpacks to more than {_ARCHIVE_BYTES} bytes")
        return data


def tar_members(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted members of a tar archive, plain or gzip, in one pass, without unpacking."""
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
        while limited.read(_CHUNK):  # the sum of a gzip file stands at its end
            pass


def _refuse_strange(member: tarfile.TarInfo, count: int) -> None:
    name = printable(member.name)
    if count >= _MOST_MEMBERS:
        raise Damage(f"it holds more than {_MOST_MEMBERS} members")
    if not (member.isfile() or member.isdir()):
        raise Damage(f"member {name} is a link or a device")
    if member.name.startswith("/") or ".." in member.name.split("/"):
        raise Damage(f"member {name} points outside the archive")
    if member.size > _MEMBER_BYTES:
        raise Damage(f"member {name} has {member.size} bytes, at most {_MEMBER_BYTES} are read")
