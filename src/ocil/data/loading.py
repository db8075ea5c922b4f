"""From the name of a data set to its arrays. Nothing is ever fetched here."""

from __future__ import annotations

from pathlib import Path

from ocil.data.dataset import Dataset
from ocil.data.decoder import Decoder
from ocil.data.places import Found, require
from ocil.data.source import Source
from ocil.data.sources import named


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """Return a named data set, read from ROOT/NAME.

    ROOT is `data_dir` alone if given, otherwise $OCIL_DATA and then the user's cache folder.

    >>> load("digits").train_images.shape
    (1442, 1, 8, 8)
    """
    source = named(name)
    found = require(source, data_dir)
    if found.form == "bundled":
        from ocil.data.bundled import read_digits

        return read_digits(source)
    if found.form == "idx":
        from ocil.data.idx import read_idx_dataset

        return read_idx_dataset(source, found)
    from ocil.data.cache import cached

    return cached(source, found, lambda: decoder_of(source, found))


def decoder_of(source: Source, found: Found) -> Decoder:
    """Return the reader for the form in which compressed images lie there."""
    if found.form == "parquet":
        from ocil.data.parquet import parquet_decoder

        return parquet_decoder(source, found)
    if found.form in ("folder", "zip"):
        from ocil.data.imagenet import tiny_decoder

        return tiny_decoder(source, found)
    from ocil.data.cifar import batches_decoder

    return batches_decoder(source, found)
