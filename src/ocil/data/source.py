"""What a named data set is: where it comes from, how large it is, how it is usually streamed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ocil.text import plain


@dataclass(frozen=True)
class SourceFile:
    """One published file; a checksum is None where the publisher gives none."""

    name: str
    urls: tuple[str, ...]
    size: int  # bytes
    md5: str | None = None
    sha256: str | None = None
    unpacked_md5: str | None = None  # of the content of a gzip file


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

    @property
    def size(self) -> int:
        """Bytes to download; 0 where there is nothing to fetch."""
        return sum(file.size for file in self.files)

    def by_hand(self, folder: Path) -> str:
        """Return the half sentence that says which files to put where."""
        origin = f" (from {self.home})" if self.files else ""
        return f"put {listed(self.place)} into {folder}{origin}"

    def remedy(self, folder: Path) -> str:
        """Return the half sentence that gets the data: by command where there is one."""
        fetch = f"run `ocil data get {self.name}`, or " if self.files else ""
        return fetch + self.by_hand(folder)


def listed(names: tuple[str, ...]) -> str:
    """Join names for a sentence.

    >>> listed(("a", "b", "c"))
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def printable(text: object, limit: int = 80) -> str:
    """Text from a file in a message or as the name of a class."""
    return plain(text, limit)
