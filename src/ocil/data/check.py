"""Is a data set what it should be? Files against published checksums, arrays against counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ocil.data import cache, entry
from ocil.data.checksums import checksum_problem, stream_digest, unpacked_md5
from ocil.data.dataset import Dataset
from ocil.data.loading import load
from ocil.data.places import Found, require
from ocil.data.source import Source
from ocil.data.sources import named


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
        """Tell whether nothing was found wrong."""
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
    where = "bundled" if found.form == "bundled" else str(found.folder)
    return Report(name, where, tuple(findings))


def _files(source: Source, found: Found) -> Iterator[Finding]:
    published = {file.name.removesuffix(".gz"): file for file in source.files}
    for path in found.paths.values():
        if found.form == "batches":
            with path.open("rb") as stream:
                yield _compare(path, stream_digest(stream, "md5"), source.member_md5[path.name])
            continue
        file = published.get(path.name.removesuffix(".gz").replace(".idx", "-idx"))
        if file is None:
            yield Finding(path.name, None, "no checksum is published for this form")
        elif (problem := checksum_problem(path, file)) is None:
            yield Finding(path.name, True, "as published")
        elif found.form == "idx" and file.unpacked_md5:
            found_md5 = unpacked_md5(path) or "not readable"
            yield _compare(path, found_md5, file.unpacked_md5, "content as published")
        elif found.form == "idx":
            yield Finding(path.name, None, f"packed otherwise than published ({problem})")
        else:
            yield Finding(path.name, False, problem)


def _compare(path: Path, found: str, expected: str, good: str = "as published") -> Finding:
    same = found == expected
    return Finding(path.name, same, good if same else f"md5 {found}, expected {expected}")


def _arrays(source: Source, dataset: Dataset) -> Iterator[Finding]:
    sets = (
        ("train", dataset.train_images, dataset.train_labels, source.train),
        ("test", dataset.test_images, dataset.test_labels, source.test),
    )
    for part, images, labels, expected in sets:
        yield Finding(f"{part} images", len(images) == expected, f"{len(images)} of {expected}")
        counts = np.bincount(labels, minlength=len(dataset.class_names))
        spread = f"{counts.min()} to {counts.max()} images a class"
        yield Finding(f"{part} classes", len(counts) == source.classes, f"{len(counts)}, {spread}")
        low, high = int(images.min()), int(images.max())
        shape = "x".join(map(str, images.shape[1:]))
        yield Finding(f"{part} values", (low, high) == (0, 255), f"{low} to {high}, {shape}")
        if known := source.pixels.get(part):
            pixels = entry.array_sha256(images.transpose(0, 2, 3, 1))[: len(known)]
            yield Finding(f"{part} pixels", pixels == known, f"sha256 {pixels}, expected {known}")


def _cache(source: Source, found: Found, dataset: Dataset) -> Iterator[Finding]:
    folder = cache.entry_folder(source, found)
    facts = entry.read_facts(folder)["arrays"]
    for name, array in zip(entry.ARRAYS, dataset.arrays, strict=True):
        same = entry.array_sha256(array) == facts[name]["sha256"]
        detail = "unchanged" if same else f"changed; delete {folder}"
        yield Finding(f"cached {name.replace('_', ' ')}", same, detail)
