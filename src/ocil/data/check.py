"""Is a data set what it should be? Files against published checksums, arrays against counts."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ocil.data import cache
from ocil.data.archive import open_plain_or_gzip
from ocil.data.dataset import Dataset, load
from ocil.data.find import Found, require
from ocil.data.reader import PARTS
from ocil.data.sources import Source, SourceFile, named

_CHUNK = 1 << 20
_MAX_UNPACKED = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ok is None where nothing is published to compare with."""

    what: str
    ok: bool | None
    detail: str


@dataclass(frozen=True)
class Report:
    """All findings on a data set."""

    name: str
    where: str  # the folder, or "bundled"
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found wrong."""
        return all(finding.ok is not False for finding in self.findings)


def check(name: str, data_dir: Path | None = None) -> Report:
    """Verify files, decoded counts, classes and value ranges; raises if nothing can be read."""
    source = named(name)
    found = require(source, data_dir)
    findings = list(_files(source, found))
    dataset = load(name, data_dir)
    findings += _arrays(source, dataset)
    if isinstance(dataset.train_images, np.memmap):
        findings += _cache(source, found, dataset)
    return Report(name, str(found), tuple(findings))


def _files(source: Source, found: Found) -> Iterator[Finding]:
    published = {file.name: file for file in source.files}
    for name, path in found.paths.items():
        file = published.get(name)
        if found.form == "batches":
            with path.open("rb") as stream:
                yield _compare(path, _digest(stream, "md5"), source.member_md5[name])
        elif file is None:
            yield Finding(path.name, None, "no checksum is published for this form")
        elif (problem := checksum_problem(path, file)) is None:
            yield Finding(path.name, True, "as published")
        elif file.unpacked_md5:
            found_md5 = _unpacked_md5(path) or "not readable"
            yield _compare(path, found_md5, file.unpacked_md5, "content as published")
        elif found.form == "idx":
            yield Finding(path.name, None, f"packed otherwise than published ({problem})")
        else:
            yield Finding(path.name, False, problem)


def _compare(path: Path, found: str, expected: str, good: str = "as published") -> Finding:
    same = found == expected
    return Finding(path.name, same, good if same else f"md5 {found}, expected {expected}")


def _arrays(source: Source, dataset: Dataset) -> Iterator[Finding]:
    for part, images, labels in zip(PARTS, dataset.arrays[::2], dataset.arrays[1::2], strict=True):
        expected = source.images(part)
        yield Finding(f"{part} images", len(images) == expected, f"{len(images)} of {expected}")
        counts = np.bincount(labels, minlength=len(dataset.class_names))
        spread = f"{counts.min()} to {counts.max()} images a class"
        yield Finding(f"{part} classes", len(counts) == source.classes, f"{len(counts)}, {spread}")
        low, high = int(images.min()), int(images.max())
        shape = "x".join(map(str, images.shape[1:]))
        yield Finding(f"{part} values", (low, high) == (0, 255), f"{low} to {high}, {shape}")
        if known := source.pixels.get(part):
            pixels = cache.array_sha256(images.transpose(0, 2, 3, 1))[: len(known)]
            yield Finding(f"{part} pixels", pixels == known, f"sha256 {pixels}, expected {known}")


def _cache(source: Source, found: Found, dataset: Dataset) -> Iterator[Finding]:
    folder = cache.entry_folder(source, found)
    facts = cache.read_facts(folder)["arrays"]
    for name, array in zip(cache.ARRAYS, dataset.arrays, strict=True):
        same = cache.array_sha256(array) == facts[name]["sha256"]
        detail = "unchanged" if same else f"changed; delete {folder}"
        yield Finding(f"cached {name.replace('_', ' ')}", same, detail)


def checksum_problem(path: Path, file: SourceFile) -> str | None:
    """What differs from the published size and checksums, or None."""
    size = path.stat().st_size
    if size != file.size:
        return f"it has {size} bytes, expected {file.size}"
    for kind, expected in (("sha256", file.sha256), ("md5", file.md5)):
        if expected is not None:
            with path.open("rb") as stream:
                found = _digest(stream, kind)
            if found != expected:
                return f"its {kind} is {found}, expected {expected}"
    return None


def is_published(path: Path, file: SourceFile) -> bool:
    """Whether a file is the published one, or the same content packed in another way."""
    if checksum_problem(path, file) is None:
        return True
    return file.unpacked_md5 is not None and _unpacked_md5(path) == file.unpacked_md5


def _unpacked_md5(path: Path) -> str | None:
    """The md5 of what is in a file, through gzip if it is one; None if it is damaged."""
    try:
        with open_plain_or_gzip(path) as stream:
            return _digest(stream, "md5")
    except (OSError, EOFError, zlib.error):
        return None


def _digest(stream: BinaryIO, kind: str) -> str:
    """Hex digest (md5 or sha256) of at most a gigabyte of a stream."""
    digest = hashlib.new(kind, usedforsecurity=False)
    left = _MAX_UNPACKED
    while left > 0 and (data := stream.read(min(_CHUNK, left))):
        digest.update(data)
        left -= len(data)
    return digest.hexdigest()
