"""Arrays of your own: .npz with items and labels, whole or in parts, and single .npy arrays.

One rule decides what an array is: its name. Items are named x (or as in ITEMS), labels y (or as in
LABELS); in a file with parts each of them has the part before or after it: x_train, train_images.
What has another name is not used and said so. A file in which two arrays could be the same thing,
or in which one of a pair is missing, is refused.
"""

from __future__ import annotations

import io
import logging
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ocil.data.archive import read_member
from ocil.data.reader import Damage
from ocil.files import open_plain, read_plain
from ocil.labels import Label
from ocil.text import listed, plain

MAX_BYTES = 4 << 30  # unpacked
ITEMS = ("x", "image", "images", "img", "data", "features", "embedding", "embeddings", "arr_0")
LABELS = ("y", "label", "labels", "fine_label", "target", "class", "arr_1")
TESTS = ("test", "val", "valid", "validation")  # of several parts to test on the first counts

log = logging.getLogger("ocil")


class Raw(NamedTuple):
    """Items as an array (n, ...), or what reads a compressed picture; and a label for each."""

    items: np.ndarray | Callable[[int], bytes]
    labels: list[Label]
    names: list[str] | None = None  # of files; pictures without are named by their row


class _Pair(NamedTuple):
    """Names of the arrays of a part ("" for a file without parts)."""

    part: str
    items: str | None
    labels: str | None


def read_npz(path: Path) -> dict[str, Raw]:
    """The parts train and, where there is one, test."""
    with open_plain(path) as stream, zipfile.ZipFile(stream) as archive:
        members = _members(archive)
        pairs = {pair.part: pair for pair in _pairs(list(members))}
        for pair in pairs.values():
            if pair.labels is None or pair.items is None:
                missing = "labels" if pair.labels is None else "items"
                alone = plain(pair.items or pair.labels, 80)
                raise Damage(f"it has {alone} but no {missing} beside it")
        if not pairs:
            shown = plain(", ".join(members), 120)
            raise Damage(f"it has no arrays x and y (or x_train, y_train, ...), but {shown}")
        train = pairs.get("") or pairs.get("train")
        if train is None:
            raise Damage("it has a test part but nothing to train on (x_train and y_train)")
        test = next((pairs[part] for part in TESTS if part in pairs), None)
        taken = {"train": train} | ({"test": test} if test else {})
        _warn(path, taken, list(members))
        read = {name: _npy(archive, members[str(name)]) for p in taken.values() for name in p[1:]}
        return {part: Raw(read[p.items], read[p.labels].tolist()) for part, p in taken.items()}


def count_npz(path: Path) -> int:
    """How many samples `read_npz` finds to train on, by the head of their labels alone."""
    with open_plain(path) as stream, zipfile.ZipFile(stream) as archive:
        members = _members(archive)
        names = {pair.part: pair.labels for pair in _pairs(list(members)) if pair.labels}
        name = names.get("") or names.get("train")
        if name is None:
            raise Damage("it has no labels y (or y_train)")
        with archive.open(members[name]) as array:
            return _head(array)[0][0]


def _head(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and type that an array in numpy's format announces."""
    first = np.lib.format.read_magic(stream) == (1, 0)
    header = "read_array_header_1_0" if first else "read_array_header_2_0"
    shape, _, dtype = getattr(np.lib.format, header)(stream)
    return shape, dtype


def read_items(path: Path) -> np.ndarray:
    """The items of a file of which labels are asked: it has one array of them, or it is .npy."""
    if path.suffix.lower() == ".npy":
        return npy(read_plain(path, MAX_BYTES))
    with open_plain(path) as stream, zipfile.ZipFile(stream) as archive:
        members = _members(archive)
        found = [pair.items for pair in _pairs(list(members)) if pair.items]
        if len(found) != 1:
            shown = plain(", ".join(members), 120)
            raise Damage(f"it has {len(found)} arrays of items among {shown}; give one, x")
        return _npy(archive, members[found[0]])


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    members = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
    if len(members) != len(archive.infolist()):
        raise Damage("two of its arrays have the same name")
    if sum(m.file_size for m in members.values()) > MAX_BYTES:
        raise Damage(f"it unpacks to more than {MAX_BYTES} bytes")
    return members


def _pairs(names: list[str]) -> list[_Pair]:
    """What the names say, part by part; what cannot be meant is refused."""
    parts = ("", "train", *TESTS)
    pairs = [
        _Pair(p, _one(names, ITEMS, p, "items"), _one(names, LABELS, p, "labels")) for p in parts
    ]
    found = [pair for pair in pairs if pair.items or pair.labels]
    if len(found) > 1 and not found[0].part:
        both = sorted(name for pair in found for name in pair[1:] if name)
        raise Damage(
            f"it has {plain(listed(both), 120)}: give its items whole or in parts, not both"
        )
    return found


def _one(names: list[str], known: tuple[str, ...], part: str, what: str) -> str | None:
    """The one name that stands for the items or labels of a part."""
    forms = {f for n in known for f in ((f"{n}_{part}", f"{part}_{n}") if part else (n,))}
    found = [name for name in names if name.lower() in forms]
    if len(found) > 1:
        what += f" of {part}" if part else ""
        raise Damage(f"{plain(listed(found), 120)} could both be the {what}; take one out")
    return found[0] if found else None


def _warn(path: Path, taken: Mapping[str, _Pair], names: list[str]) -> None:
    """One line on what is taken, where that is not all, or not plain."""
    used = {name for pair in taken.values() for name in pair[1:]}
    left = [name for name in names if name not in used]
    if left or ("test" in taken and taken["test"].part != "test"):
        parts = ", ".join(f"{p} is {pair.items} and {pair.labels}" for p, pair in taken.items())
        more = f"; not used: {', '.join(left)}" if left else ""
        log.warning("%s: %s.", plain(path), plain(parts + more, 400))


def _npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Damage(f"it is packed with method {member.compress_type}")
    return npy(read_member(archive, member))


def npy(data: bytes) -> np.ndarray:
    """An array in numpy's format, its announced size compared with the bytes before it is made."""
    stream = io.BytesIO(data)
    shape, dtype = _head(stream)
    if dtype.hasobject:
        raise Damage("it holds Python objects, which are not read; save plain arrays")
    if dtype.kind not in "biufUS":
        raise Damage(f"it holds values of type {plain(dtype, 80)}; save numbers or text")
    if any(type(n) is not int or n < 0 for n in shape):
        raise Damage(f"it announces the shape {plain(shape, 80)}")
    if (wanted := math.prod(shape) * dtype.itemsize) != len(data) - stream.tell():
        raise Damage(f"it announces {wanted} bytes and holds {len(data) - stream.tell()}")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
