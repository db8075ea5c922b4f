"""From the name of a data set to its arrays: two sets of uint8 images with integer labels.

Nothing is ever fetched here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ocil.data.find import Found, require
from ocil.data.reader import PARTS, Chunk
from ocil.data.sources import Source, named
from ocil.errors import OcilError

_CHUNK = 1 << 24  # bytes hashed at a time: a memory map is never held in memory as a whole


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images uint8 (N, C, H, W), possibly read-only memory maps, and labels int64 (N,)."""

    name: str
    train_images: np.ndarray = field(repr=False)
    train_labels: np.ndarray = field(repr=False)
    test_images: np.ndarray = field(repr=False)
    test_labels: np.ndarray = field(repr=False)
    class_names: tuple[str, ...] = field(repr=False)
    known_fingerprint: str | None = field(default=None, repr=False)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 (hex) over dtype, shape and bytes of the four arrays."""
        return self.known_fingerprint or fingerprint(self.arrays)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Train images, train labels, test images, test labels."""
        return self.train_images, self.train_labels, self.test_images, self.test_labels

    def checked(self) -> Dataset:
        """The same, its arrays made read-only; raises for wrong types, shapes and labels."""
        for array in self.arrays:
            array.flags.writeable = False
        for part, images, labels in (
            ("training", self.train_images, self.train_labels),
            ("test", self.test_images, self.test_labels),
        ):
            if problem := _problem(images, labels, len(self.class_names)):
                raise OcilError(f"{self.name}, {part} set: {problem}.")
        train, test = self.train_images.shape[1:], self.test_images.shape[1:]
        if train != test:
            raise OcilError(
                f"{self.name}: training images are {train} and test images {test} (channels, "
                "height, width); both sets need one size."
            )
        return self


def _problem(images: np.ndarray, labels: np.ndarray, classes: int) -> str | None:
    if images.dtype != np.uint8 or images.ndim != 4:
        return f"images are {images.dtype} {images.shape}; give uint8 (N, C, H, W)"
    if labels.dtype != np.int64 or labels.shape != (len(images),):
        found = f"{len(images)} images but labels {labels.dtype} {labels.shape}"
        return f"{found}; give one int64 label for each image"
    if not len(labels):
        return "it holds 0 images; copy the files again"
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        wanted = f"with {classes} classes they must lie in 0..{classes - 1}"
        return f"labels run from {low} to {high}; {wanted}"
    counts = np.bincount(labels, minlength=classes)
    if not counts.all():
        wanted = f"each of the {classes} classes needs at least one"
        return f"class {int(counts.argmin())} has no image; {wanted}"
    return None


def fingerprint(arrays: Sequence[np.ndarray]) -> str:
    """Hash dtype, shape and content of the arrays, in order, without copying them.

    >>> fingerprint([np.zeros((1, 2), np.uint8)]) == fingerprint([np.zeros((2, 1), np.uint8)])
    False
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        update_with(digest, array)
    return digest.hexdigest()


def update_with(digest: hashlib._Hash, array: np.ndarray) -> None:
    """Feed the bytes of `array` in C order to a hash, some megabytes at a time."""
    rows = max(1, _CHUNK // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        digest.update(np.ascontiguousarray(array[start : start + rows]).data)


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """Return a named data set, read from ROOT/NAME.

    ROOT is `data_dir` alone if given, otherwise $OCIL_DATA and then the user's cache folder.

    >>> load("digits").train_images.shape
    (1442, 1, 8, 8)
    """
    source = named(name)
    found = require(source, data_dir)
    if found.form in ("bundled", "idx"):  # read as fast as a cache would be
        return in_memory(source, found)
    from ocil.data.cache import cached

    return cached(source, found)


def in_memory(source: Source, found: Found) -> Dataset:
    """Decode all at once."""
    parts = [zip(*chunks_of(source, found, part), strict=True) for part in PARTS]
    arrays = [np.concatenate(each) for part in parts for each in part]
    return Dataset(source.name, *arrays, class_names=class_names(source, found)).checked()


def class_names(source: Source, found: Found) -> tuple[str, ...]:
    from ocil.data.imagenet import class_names

    return source.class_names or class_names(source, found)


def chunks_of(source: Source, found: Found, part: str) -> Iterator[Chunk]:
    """The images of "train" or "test" in order, by the reader for the form of the files."""
    if found.form == "bundled":
        read = _read_digits
    elif found.form == "idx":
        from ocil.data.idx import read_idx as read
    elif found.form == "parquet":
        from ocil.data.parquet import read_named as read
    elif found.form in ("folder", "zip"):
        from ocil.data.imagenet import read_tiny as read
    else:
        from ocil.data.cifar import read_batches as read
    return read(source, found, part)


def every_fifth(labels: np.ndarray) -> np.ndarray:
    """Every fifth item of each class, or its last, to test on: (n,) bool."""
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        chosen[own[4::5] if len(own) > 4 else own[-1:]] = True
    return chosen


def _read_digits(_: Source, __: Found, part: str) -> Iterator[Chunk]:
    """The 1797 digits of scikit-learn, 8x8; every fifth of each class, in file order, is test.

    Grey values 0..16 become round(v * 255 / 16), so that white is 255 as everywhere else.
    """
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    images = np.rint(np.asarray(bunch["images"]) * (255 / 16)).astype(np.uint8)[:, None]
    labels = np.asarray(bunch["target"]).astype(np.int64)
    chosen = every_fifth(labels) == (part == "test")
    yield images[chosen], labels[chosen]
