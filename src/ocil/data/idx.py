"""IDX files (MNIST and its relatives), plain or gzip; told apart by their first bytes.

Layout: two zero bytes, a type code (0x08 = uint8), the number of axes, the length of each axis
as big-endian uint32, then the values in C order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ocil.data.archive import open_plain_or_gzip
from ocil.data.find import Found
from ocil.data.reader import Chunk, Damage, reading
from ocil.data.sources import Source


def read_idx(source: Source, found: Found, part: str) -> Iterator[Chunk]:
    """A part is one chunk of two files."""
    files = source.files[:2] if part == "train" else source.files[2:]
    image_path, label_path = (found.paths[file.name] for file in files)
    limit = source.images(part)
    with reading(image_path, source):
        images = _read_array(image_path, limit, source.shape[1:])
    with reading(label_path, source):
        labels = _read_array(label_path, limit, ())
        if len(labels) != len(images):
            counts = f"{len(labels)} labels for the {len(images)} images"
            raise Damage(f"it holds {counts} of {image_path.name}")
        if int(labels.max()) >= source.classes:
            raise Damage(f"label {labels.max()} is not in 0..{source.classes - 1}")
    yield images[:, None], labels.astype(np.int64)


def _read_array(path: Path, limit: int, item: tuple[int, ...]) -> np.ndarray:
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


def _read_shape(stream: BinaryIO) -> tuple[int, ...]:
    head = stream.read(4)
    if len(head) < 4 or head[:2] != b"\0\0":
        raise Damage("it is not an IDX file (it must begin with two zero bytes)")
    kind, axes = head[2], head[3]
    if kind != 0x08:
        raise Damage(f"its values have type code 0x{kind:02x}, only 0x08 (uint8) is read")
    if not 1 <= axes <= 4:
        raise Damage(f"its header announces {axes} axes")
    lengths = stream.read(4 * axes)
    if len(lengths) < 4 * axes:
        raise Damage("it ends within its header")
    return struct.unpack(f">{axes}I", lengths)
