"""From the name of a data set to its arrays. Nothing is ever fetched here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ocil.data.dataset import Dataset
from ocil.data.find import Found, require
from ocil.data.reader import PARTS, Chunk, Decoder
from ocil.data.sources import Source, named


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """Return a named data set, read from ROOT/NAME.

    ROOT is `data_dir` alone if given, otherwise $OCIL_DATA and then the user's cache folder.

    >>> load("digits").train_images.shape
    (1442, 1, 8, 8)
    """
    source = named(name)
    found = require(source, data_dir)
    if found.form in ("bundled", "idx"):  # read as fast as a cache would be
        return in_memory(source, decoder_of(source, found))
    from ocil.data.cache import cached

    return cached(source, found, lambda: decoder_of(source, found))


def in_memory(source: Source, decoder: Decoder) -> Dataset:
    """Decode all at once."""
    arrays = [
        np.concatenate(each) for part in PARTS for each in zip(*decoder.chunks(part), strict=True)
    ]
    return Dataset(source.name, *arrays, class_names=decoder.class_names).checked()


def decoder_of(source: Source, found: Found) -> Decoder:
    """The reader for the form in which the files lie there."""
    if found.form == "bundled":
        return _read_digits(source)
    if found.form == "idx":
        from ocil.data.idx import read_idx as read
    elif found.form == "parquet":
        from ocil.data.parquet import read_named as read
    elif found.form in ("folder", "zip"):
        from ocil.data.imagenet import read_tiny as read
    else:
        from ocil.data.cifar import read_batches as read
    return read(source, found)


def _read_digits(source: Source) -> Decoder:
    """The 1797 digits of scikit-learn, 8x8; every fifth of each class, in file order, is test.

    Grey values 0..16 become round(v * 255 / 16), so that white is 255 as everywhere else.
    """
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    images = np.rint(np.asarray(bunch["images"]) * (255 / 16)).astype(np.uint8)[:, None]
    labels = np.asarray(bunch["target"]).astype(np.int64)
    is_test = np.zeros(len(labels), dtype=bool)
    for label in range(source.classes):
        is_test[np.flatnonzero(labels == label)[4::5]] = True

    def chunks(part: str) -> Iterator[Chunk]:
        chosen = is_test if part == "test" else ~is_test
        yield images[chosen], labels[chosen]

    return Decoder(source.class_names, chunks)
