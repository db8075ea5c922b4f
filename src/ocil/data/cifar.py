"""CIFAR-10 and CIFAR-100 as first published: python batches, in a folder or a tar archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ocil.data.archive import MAX_MEMBER_BYTES, tar_members
from ocil.data.find import Found
from ocil.data.reader import Chunk, Damage, Decoder, integer_labels, reading
from ocil.data.sources import Source
from ocil.data.unpickle import PickledArray, read_plain_pickle


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
            data = stream.read(MAX_MEMBER_BYTES + 1)
        if len(data) > MAX_MEMBER_BYTES:
            raise Damage(f"it is larger than {MAX_MEMBER_BYTES} bytes")
        return _read_batch(source, data, limit)


def _from_tar(source: Source, path: Path, names: list[str], limit: int) -> Iterator[Chunk]:
    chunks: dict[str, Chunk] = {}
    with reading(path, source):
        for name, data in tar_members(path, names):
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
