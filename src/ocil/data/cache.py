"""Decoded images, kept as memory-mapped .npy files so that the next start need not decode.

They lie in CACHE/decoded/NAME-KEY/; KEY follows the names, sizes and times of the source files.
Runs that use one data set at the same time share the pages of the same maps. An entry is four .npy
files and entry.json, which holds the version, class names, fingerprint, and shape, dtype, file size
and sha256 of each array. It is written under another name, synced and renamed: whole or not there.
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

from ocil.data.dataset import (
    Dataset,
    chunks_of,
    class_names,
    fingerprint,
    in_memory,
    update_with,
)
from ocil.data.find import Found, cache_root
from ocil.data.reader import PARTS, Chunk
from ocil.data.sources import Source

VERSION = 1  # raise it whenever a reader gives other arrays for the same files
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_FACTS = "entry.json"
_MAX_FACTS_BYTES = 1 << 20
_LOCK_SECONDS = 1800.0

logger = logging.getLogger(__name__)


def cached(source: Source, found: Found) -> Dataset:
    """The decoded data set from the cache; it is decoded into the cache if it is not there."""
    from filelock import FileLock

    try:
        entry = entry_folder(source, found)
        if dataset := _open_entry(source, entry):
            return dataset
        entry.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{entry}.lock", timeout=_LOCK_SECONDS):
            if not (dataset := _open_entry(source, entry)):  # another process may have made it
                logger.info("Decoding %s once into %s.", source.name, entry)
                _write_entry(source, found, entry)
                dataset = _open_entry(source, entry)
        if dataset:
            return dataset
        problem = "it cannot be read back"
    except (OSError, NotImplementedError) as error:
        # a full disk, a read-only or odd file system, a lock that another process holds too long
        problem = str(error)
    logger.warning(
        "The decoded images of %s are kept in memory and not cached (%s); "
        "set XDG_CACHE_HOME to a folder with room to make the next start faster.",
        source.name,
        problem,
    )
    return in_memory(source, found)


def entry_folder(source: Source, found: Found) -> Path:
    """Where the decoded arrays of these very files belong."""
    facts: list[Any] = [VERSION, source.name, found.form, str(found.folder.resolve())]
    for path in found.paths.values():
        inner = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
        for file in sorted(inner) if path.is_dir() else [path]:
            state = file.stat()
            facts.append([str(file.relative_to(path.parent)), state.st_size, state.st_mtime_ns])
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return cache_root() / "decoded" / f"{source.name}-{key}"


def _open_entry(source: Source, entry: Path) -> Dataset | None:
    """Map the arrays of an entry; None if it is absent or damaged (sizes, shapes, labels)."""
    if not entry.is_dir():
        return None
    try:
        facts = read_facts(entry)
        arrays = [_open_array(entry, name, facts["arrays"][name]) for name in ARRAYS]
        names, known = tuple(map(str, facts["class_names"])), str(facts["fingerprint"])
        return Dataset(source.name, *arrays, class_names=names, known_fingerprint=known).checked()
    except Exception as error:  # damaged files can provoke any kind
        logger.warning("The cache %s is damaged (%s) and is made again.", entry, error)
        return None


def read_facts(entry: Path) -> dict[str, Any]:
    """What was noted beside the arrays."""
    with (entry / _FACTS).open("rb") as stream:
        facts = json.loads(stream.read(_MAX_FACTS_BYTES))
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


def _write_entry(source: Source, found: Found, entry: Path) -> None:
    """Decode into a folder beside the entry, sync, and rename it; the caller holds the lock."""
    making = entry.with_name(f"{entry.name}.making")
    shutil.rmtree(making, ignore_errors=True)  # of a process that was killed
    making.mkdir()
    try:
        for part in PARTS:
            _write_part(making, part, source.shape, chunks_of(source, found, part))
        paths = [making / f"{name}.npy" for name in ARRAYS]
        arrays = [np.load(path, mmap_mode="r") for path in paths]
        names = class_names(source, found)
        Dataset(source.name, *arrays, class_names=names).checked()
        facts = {
            "version": VERSION,
            "name": source.name,
            "class_names": list(names),
            "fingerprint": fingerprint(arrays),
            "arrays": {
                path.stem: {
                    "shape": list(array.shape),
                    "dtype": array.dtype.str,
                    "bytes": path.stat().st_size,
                    "sha256": array_sha256(array),
                }
                for path, array in zip(paths, arrays, strict=True)
            },
        }
        with _synced(making / _FACTS) as stream:
            stream.write(json.dumps(facts, indent=1).encode())
        if entry.exists():  # a damaged one
            shutil.rmtree(entry)
        making.rename(entry)
    finally:
        shutil.rmtree(making, ignore_errors=True)


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
