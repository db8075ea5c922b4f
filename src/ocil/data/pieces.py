"""Data of your own in pieces, which workers anywhere read: pictures, shards, or what is here.

Pictures in folders are read one by one, shards (a folder of .npz or .parquet files) a file at a
time; other data are read at once and handed over. Samples are numbered as `read_own` gives them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ocil.data.arrays import count_npz
from ocil.data.own import Part, is_saved, read_folder, read_own, shards_in
from ocil.data.parquet import count_rows
from ocil.data.pictures import MAX_FILE_BYTES, Bad, Shape, decode_all
from ocil.data.reader import reading
from ocil.files import read_plain
from ocil.labels import Label


class Reading(NamedTuple):
    """How pictures are read, see `decode_all`."""

    resize: int | None = None
    bad: Bad = "fail"
    shape: Shape | None = None


class Piece(NamedTuple):
    """Some samples, and their places (n,) in the order in which all are learned."""

    at: np.ndarray
    part: Part | None = None  # what was read already
    files: tuple[list[str], list[Label]] | None = None  # pictures and their labels
    shard: tuple[str, np.ndarray] | None = None  # a file, and which rows of it

    def read(self, how: Reading) -> tuple[Part, np.ndarray]:
        """Items and labels, and their places; pictures that were passed over are missing."""
        if self.shard:
            found, rows = _read_shard(self.shard[0], how), self.shard[1]
            return Part(found.items[rows], [found.labels[i] for i in rows]), self.at
        if self.files:
            files, labels = self.files
            with reading(Path(files[0])):
                x, kept = decode_all(
                    files, lambda i: read_plain(Path(files[i]), MAX_FILE_BYTES), *how
                )
            return Part(x, [labels[i] for i in kept]), self.at[kept]
        assert self.part is not None
        return self.part, self.at


@functools.lru_cache(maxsize=1)  # a worker has often several pieces of a shard
def _read_shard(path: str, how: Reading) -> Part:
    return read_own(Path(path), *how)["train"]


@dataclass
class Pieces:
    """All samples there are: in shards with their numbers of samples, as pictures, or read."""

    total: int
    shards: Sequence[tuple[Path, int]] = ()
    files: tuple[list[str], list[Label]] | None = None
    part: Part | None = None

    def cut(self, order: np.ndarray, start: int, end: int, size: int) -> Iterator[Piece]:
        """Pieces of at most `size` samples, of those from `start` to `end` in the order (n,)."""
        if not self.shards:
            for begin in range(start, end, size):
                at = np.arange(begin, min(begin + size, end))
                yield self._taken(order[at].tolist(), at)
            return
        places, first = np.empty(self.total, np.int64), 0
        places[order] = np.arange(self.total)
        for file, count in self.shards:
            for begin in range(0, count, size):
                rows = np.arange(begin, min(begin + size, count))
                at = places[first + rows]
                wanted = (start <= at) & (at < end)
                if wanted.any():
                    yield Piece(at[wanted], shard=(str(file.absolute()), rows[wanted]))
            first += count

    def _taken(self, rows: list[int], at: np.ndarray) -> Piece:
        if self.part:
            return Piece(at, Part(self.part.items[rows], [self.part.labels[i] for i in rows]))
        assert self.files is not None
        names, labels = self.files
        return Piece(at, files=([names[i] for i in rows], [labels[i] for i in rows]))


def find_pieces(path: Path, how: Reading) -> Pieces:
    """What there is to read; no more of it is read than has to be."""
    with reading(path):
        if files := shards_in(path):
            count = {".npz": count_npz, ".parquet": count_rows}
            shards = [(file, count[file.suffix](file)) for file in files]
            return Pieces(sum(n for _, n in shards), shards)
        if path.is_dir() and not is_saved(path):
            raw = read_folder(path.absolute())["train"]
            return Pieces(len(raw.labels), files=(raw.names or [], raw.labels))
    part = read_own(path, *how)["train"]
    return Pieces(len(part.labels), part=part)
