"""IDX files (MNIST and its relatives), plain or gzip; told apart by their first bytes.

Layout: two zero bytes, a type code (0x08 = uint8), the number of axes, the length of each axis
as big-endian uint32, then the values in C order.
"""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from ocil.data.damage import Damage, reading
from ocil.data.dataset import Dataset, finished
from ocil.data.places import Found
from ocil.data.source import Source
from ocil.files import open_plain

_UINT8 = 0x08
_GZIP = b"\x1f\x8b"


def read_idx_dataset(source: Source, found: Found) -> Dataset:
    """Read the four IDX files of a data set."""
    parts = []
    for part, limit in (("train", source.train), ("test", source.test)):
        image_path, label_path = found.paths[f"{part}_images"], found.paths[f"{part}_labels"]
        with reading(source, image_path):
            images = read_idx(image_path, limit, source.shape[1:])
        with reading(source, label_path):
            labels = read_idx(label_path, limit, ())
            if len(labels) != len(images):
                raise Damage(
                    f"it holds {len(labels)} labels for the {len(images)} images "
                    f"of {image_path.name}"
                )
            if int(labels.max()) >= source.classes:
                raise Damage(f"label {labels.max()} is not in 0..{source.classes - 1}")
        parts.append((images[:, None], labels.astype(np.int64)))
    return finished(source.name, parts[0], parts[1], source.class_names)


def read_idx(path: Path, limit: int, item: tuple[int, ...]) -> np.ndarray:
    """Return uint8 (n, *item), 0 < n <= limit; nothing is allocated before the header fits."""
    with open_plain_or_gzip(path) as stream:
        shape = _read_shape(stream)
        if shape[1:] != item:
            raise Damage(f"its items have shape {shape[1:]}, expected {item}")
        if not 0 < shape[0] <= limit:
            raise Damage(f"its header announces {shape[0]} items, expected 1 to {limit}")
        expected = math.prod(shape)
        data = stream.read(expected + 1)  # one more, to notice what does not belong
    if len(data) != expected:
        held = f"only {len(data)}" if len(data) < expected else "more"
        raise Damage(f"its header announces {expected} bytes, it holds {held}")
    return np.frombuffer(data, dtype=np.uint8).reshape(shape)


def open_plain_or_gzip(path: Path) -> BinaryIO:
    """Open a file for reading, through gzip if it starts like one, whatever its name."""
    with open_plain(path) as stream:
        zipped = stream.read(2) == _GZIP
    return cast(BinaryIO, gzip.open(path, "rb")) if zipped else path.open("rb")


def _read_shape(stream: BinaryIO) -> tuple[int, ...]:
    head = stream.read(4)
    if len(head) < 4 or head[:2] != b"\0\0":
        raise Damage("it is not an IDX file (it must begin with two zero bytes)")
    kind, axes = head[2], head[3]
    if kind != _UINT8:
        raise Damage(f"its values have type code 0x{kind:02x}, only 0x08 (uint8) is read")
    if not 1 <= axes <= 4:
        raise Damage(f"its header announces {axes} axes")
    lengths = stream.read(4 * axes)
    if len(lengths) < 4 * axes:
        raise Damage("it ends within its header")
    return struct.unpack(f">{axes}I", lengths)
