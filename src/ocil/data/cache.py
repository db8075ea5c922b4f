"""Decoded images, kept as memory-mapped .npy files so that the next start need not decode.

They lie in CACHE/decoded/NAME-KEY/; KEY follows the names, sizes and times of the source files.
Runs that use one data set at the same time share the pages of the same maps.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ocil.data.dataset import Dataset, finished
from ocil.data.decoder import Decoder
from ocil.data.entry import VERSION, open_entry, write_entry
from ocil.data.places import Found, cache_root
from ocil.data.source import Source

_LOCK_SECONDS = 1800.0

logger = logging.getLogger(__name__)


def cached(source: Source, found: Found, decoder: Callable[[], Decoder]) -> Dataset:
    """Return the decoded data set from the cache; decode it into the cache if it is not there."""
    try:
        entry = entry_folder(source, found)
        dataset = open_entry(source, entry)
        if dataset is None:
            entry.parent.mkdir(parents=True, exist_ok=True)
            with _locked(entry):
                dataset = open_entry(source, entry)  # another process may have made it
                if dataset is None:
                    logger.info("Decoding %s once into %s.", source.name, entry)
                    write_entry(source, entry, decoder())
                    dataset = open_entry(source, entry)
        if dataset is not None:
            return dataset
        problem = "it cannot be read back"
    except (OSError, NotImplementedError) as error:  # a full disk, a read-only or odd file system
        problem = str(error)
    logger.warning(
        "The decoded images of %s are kept in memory and not cached (%s); "
        "set XDG_CACHE_HOME to a folder with room to make the next start faster.",
        source.name,
        problem,
    )
    return _in_memory(source, decoder())


def entry_folder(source: Source, found: Found) -> Path:
    """Return where the decoded arrays of these very files belong."""
    facts: list[Any] = [VERSION, source.name, found.form, str(found.folder.resolve())]
    for path in found.paths.values():
        for file in sorted(_files_of(path)):
            state = file.stat()
            facts.append([str(file.relative_to(path.parent)), state.st_size, state.st_mtime_ns])
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return cache_root() / "decoded" / f"{source.name}-{key}"


def _files_of(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (Path(folder, name) for name in names)


@contextlib.contextmanager
def _locked(entry: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        with FileLock(entry.with_name(f"{entry.name}.lock"), timeout=_LOCK_SECONDS):
            yield
    except Timeout as error:
        raise OSError(f"another process has held {error.lock_file} for too long") from error


def _in_memory(source: Source, decoder: Decoder) -> Dataset:
    parts = []
    for chunks in (decoder.train(), decoder.test()):
        images, labels = zip(*chunks, strict=True)
        parts.append((np.concatenate(images), np.concatenate(labels)))
    return finished(source.name, parts[0], parts[1], decoder.class_names)
