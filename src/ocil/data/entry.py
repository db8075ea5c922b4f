"""One entry of the decoded cache: four .npy files and entry.json, whole or not there at all.

entry.json holds the version, class names, fingerprint, and shape, dtype, file size and sha256 of
each array. An entry is written under another name, synced and renamed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ocil.data.damage import CONTENT_ERRORS
from ocil.data.dataset import Dataset, fingerprint, finished, update_with
from ocil.data.decoder import Chunk, Decoder
from ocil.data.source import Source
from ocil.errors import OcilError

VERSION = 1  # raise it whenever a reader gives other arrays for the same files
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_FACTS = "entry.json"
_FACTS_BYTES = 1 << 20

logger = logging.getLogger(__name__)


def open_entry(source: Source, entry: Path) -> Dataset | None:
    """Map the arrays of an entry; None if it is absent or damaged (sizes, shapes, labels)."""
    if not entry.is_dir():
        return None
    try:
        facts = read_facts(entry)
        arrays = [_open_array(entry, name, facts["arrays"][name]) for name in ARRAYS]
        names = tuple(str(name) for name in facts["class_names"])
        known = str(facts["fingerprint"])
        return finished(source.name, (arrays[0], arrays[1]), (arrays[2], arrays[3]), names, known)
    except (*CONTENT_ERRORS, OcilError) as error:
        logger.warning("The cache %s is damaged (%s) and is made again.", entry, error)
        return None


def read_facts(entry: Path) -> dict[str, Any]:
    """Return the facts written beside the arrays."""
    with (entry / _FACTS).open("rb") as stream:
        facts = json.loads(stream.read(_FACTS_BYTES))
    if facts["version"] != VERSION:
        raise ValueError(f"version {facts['version']}")
    return facts


def _open_array(entry: Path, name: str, facts: dict[str, Any]) -> np.ndarray:
    path = entry / f"{name}.npy"
    if path.stat().st_size != facts["bytes"]:
        raise ValueError(f"{name} has {path.stat().st_size} bytes, not {facts['bytes']}")
    is_images = name.endswith("images")
    array = np.load(path, mmap_mode="r" if is_images else None, allow_pickle=False)
    if list(array.shape) != facts["shape"] or array.dtype.str != facts["dtype"]:
        raise ValueError(f"{name} is {array.dtype} {array.shape}")
    if not is_images and array_sha256(array) != facts["sha256"]:  # small enough to look each time
        raise ValueError(f"the content of {name} has changed")
    return array


def array_sha256(array: np.ndarray) -> str:
    """Hash the values of an array."""
    digest = hashlib.sha256()
    update_with(digest, array)
    return digest.hexdigest()


def write_entry(source: Source, entry: Path, decoder: Decoder) -> None:
    """Decode into a folder beside the entry, sync, and rename it; the caller holds the lock."""
    making = entry.with_name(f"{entry.name}.making")
    shutil.rmtree(making, ignore_errors=True)  # of a process that was killed
    making.mkdir()
    try:
        for part, chunks in (("train", decoder.train()), ("test", decoder.test())):
            _write_part(making, part, source.shape, chunks)
        arrays = [np.load(making / f"{name}.npy", mmap_mode="r") for name in ARRAYS]
        finished(source.name, (arrays[0], arrays[1]), (arrays[2], arrays[3]), decoder.class_names)
        facts = {
            "version": VERSION,
            "name": source.name,
            "class_names": list(decoder.class_names),
            "fingerprint": fingerprint(arrays),
            "arrays": {
                name: _facts_of(making / f"{name}.npy", array)
                for name, array in zip(ARRAYS, arrays, strict=True)
            },
        }
        with _synced(making / _FACTS) as stream:
            stream.write(json.dumps(facts, indent=1).encode())
        if entry.exists():  # a damaged one
            shutil.rmtree(entry)
        making.rename(entry)
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _facts_of(path: Path, array: np.ndarray) -> dict[str, Any]:
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.str,
        "bytes": path.stat().st_size,
        "sha256": array_sha256(array),
    }


def _write_part(folder: Path, part: str, shape: tuple[int, ...], chunks: Iterator[Chunk]) -> None:
    """Append chunk after chunk, so that a set larger than memory can be decoded.

    Plain writes, not a writable map: on a full disk they raise where a map would end the process.
    """
    labels: list[np.ndarray] = []
    with _synced(folder / f"{part}_images.npy") as stream:
        _write_header(stream, (0, *shape))
        for images, chunk_labels in chunks:
            stream.write(np.ascontiguousarray(images).data)
            labels.append(chunk_labels)
        stream.seek(0)  # numpy leaves room in the header for the first length to grow
        _write_header(stream, (sum(map(len, labels)), *shape))
    with _synced(folder / f"{part}_labels.npy") as stream:
        np.save(stream, np.concatenate(labels), allow_pickle=False)


def _write_header(stream: Any, shape: tuple[int, ...]) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)


@contextlib.contextmanager
def _synced(path: Path) -> Iterator[Any]:
    with path.open("wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
