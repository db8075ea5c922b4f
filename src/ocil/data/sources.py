"""The named data sets of sources.toml: what is known of each, and what follows for a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ocil.errors import OcilError, suggest
from ocil.files import read_toml
from ocil.text import listed, plain


@dataclass(frozen=True)
class SourceFile:
    """One published file; a checksum is None where the publisher gives none."""

    name: str
    urls: tuple[str, ...]
    size: int  # bytes
    md5: str | None = None
    unpacked_md5: str | None = None  # of the content of a gzip file
    sha256: str | None = None


@dataclass(frozen=True)
class Source:
    """A named data set: facts for people, limits for the readers, defaults for a run."""

    name: str
    title: str
    licence: str
    citation: str
    home: str
    layout: str  # "bundled", "idx", "cifar" or "tiny"
    shape: tuple[int, int, int]  # (C, H, W)
    classes: int
    train: int  # images; a file that claims more is refused before anything is allocated
    test: int
    class_names: tuple[str, ...] = ()  # empty: read from the files
    files: tuple[SourceFile, ...] = ()
    place: tuple[str, ...] = ()  # what a person may put into ROOT/NAME by hand
    member_md5: Mapping[str, str] = field(default_factory=dict)  # of the unpacked archive
    pixels: Mapping[str, str] = field(default_factory=dict)  # sha256 of (N, H, W, C), 16 digits
    protocol: Mapping[str, Any] = field(default_factory=dict)
    mean: tuple[float, ...] = ()  # of each channel of the training images, white being 1
    std: tuple[float, ...] = ()

    def images(self, part: str) -> int:
        """How many images there are in "train" or "test"."""
        return self.train if part == "train" else self.test

    @property
    def size(self) -> int:
        """Bytes to download; 0 where there is nothing to fetch."""
        return sum(file.size for file in self.files)

    def by_hand(self, folder: Path) -> str:
        """The half sentence that says which files to put where."""
        origin = f" (from {self.home})" if self.files else ""
        return f"put {listed(self.place)} into {folder}{origin}"

    def remedy(self, folder: Path) -> str:
        """The half sentence that gets the data: by command where there is one."""
        fetch = f"run `ocil data get {self.name}`, or " if self.files else ""
        return fetch + self.by_hand(folder)


def _read() -> dict[str, Source]:
    """One table of sources.toml a data set; a file's address is a mirror and its name."""
    sources = {}
    for name, row in read_toml(Path(__file__).with_name("sources.toml")).items():
        mirrors = row.pop("mirrors", ())
        files = tuple(
            SourceFile(urls=tuple(mirror + file["name"] for mirror in mirrors), **file)
            for file in row.pop("files", ())
        )
        row.setdefault("place", [file.name for file in files])
        facts: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        sources[name] = Source(name=name, files=files, **facts)
    return sources


SOURCES = _read()


def named(name: str) -> Source:
    """The source with this name, or an error with the nearest known one."""
    if name not in SOURCES:
        known = ", ".join(SOURCES)
        raise OcilError(f"No data set '{name}'; known are {known}.{suggest(name, SOURCES)}")
    return SOURCES[name]


MAX_SMALL = 32  # pixels a side up to which grey images go to the MLP, others to the small ResNet


def default_net(shape: tuple[int, ...]) -> dict[str, str]:
    """Network and augmentation for items of a shape: the protocol of data without a name."""
    if len(shape) == 1:
        return {"net": "mlp", "augment": "none"}
    augment = "full" if shape[0] == 3 else "affine"
    if shape[0] == 1 and max(shape) <= MAX_SMALL:
        return {"net": "mlp", "augment": augment}
    return {"net": "resnet18" if max(shape) <= MAX_SMALL else "resnet18-global", "augment": augment}


def standard(name: str, shape: Sequence[int]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of a data set, for a net that standardizes its images."""
    source = SOURCES.get(name)
    if source is None or not source.mean or len(shape) != 3 or len(source.mean) != shape[0]:
        known = ", ".join(each.name for each in SOURCES.values() if each.mean)
        raise OcilError(
            f"Setting inputs is standardized, but mean and deviation of {plain(name, 80)} in items "
            f"of shape {tuple(shape)} are not known; they are of {known}. Use --inputs unit."
        )
    return source.mean, source.std
