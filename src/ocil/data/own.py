"""Data of your own as a data set: a folder per class, .npz, .parquet, or a saved data set.

Without a test part, every fifth item of each class is held out for it. The data set's name is that
of the folder or file and the beginning of its fingerprint: a record names what it was made from,
and no path.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ocil import samples
from ocil.data.archive import FolderTree
from ocil.data.arrays import TESTS, Raw, read_npz
from ocil.data.dataset import Dataset, every_fifth, fingerprint
from ocil.data.parquet import read_saved, read_table
from ocil.data.pictures import ENDINGS, MAX_FILE_BYTES, Bad, Shape, decode_all
from ocil.data.reader import Damage, reading
from ocil.data.sources import SOURCES
from ocil.errors import OcilError
from ocil.labels import Label
from ocil.text import plain

_READERS = {".npz": read_npz, ".parquet": read_table}


class Part(NamedTuple):
    """Items (n, d) or (n, C, H, W), uint8 or float32, and a label for each."""

    items: np.ndarray
    labels: list[Label]


@dataclass(frozen=True)
class OwnData:
    """Where data of your own are and how pictures among them are read."""

    path: Path
    resize: int | None = None
    """Side in pixels to which pictures are scaled, the middle cut out."""
    bad_images: Bad = "fail"
    """What a picture that cannot be decoded does: fail, or be passed over (skip)."""

    @cached_property
    def dataset(self) -> Dataset:
        """Both parts, checked, with integer labels."""
        return _as_dataset(self.path, read_own(self.path, self.resize, self.bad_images))


def looks_own(text: str) -> bool:
    """Whether the value of --data is a path and no name of a data set."""
    if text in SOURCES:
        return False
    return Path(text).exists() or os.sep in text or "/" in text or text.endswith((*_READERS,))


def read_own(
    path: Path, resize: int | None = None, bad: Bad = "fail", shape: Shape | None = None
) -> dict[str, Part]:
    """The parts train and, where there is one, test; pictures become `shape` if it is given."""
    if resize is not None and not 1 <= resize <= 4096:
        raise OcilError(f"--resize is {resize}; give 1 to 4096 pixels.")
    parts = {}
    if shards := shards_in(path):
        read = [read_own(shard, resize, bad, shape)["train"] for shard in shards]
        return {"train": _joined(path, read)}
    with reading(path):
        for part, (items, labels, names) in _read_raw(path).items():
            if isinstance(items, np.ndarray):
                x = samples.items(items, "auto")
            else:
                shown = names or [f"row {i} of {part}" for i in range(len(labels))]
                x, kept = decode_all(shown, items, resize, bad, shape)
                labels = [labels[i] for i in kept]
                shape = shape or (x.shape[1], x.shape[2], x.shape[3])
            parts[part] = Part(x, labels if names else samples.labels(labels, len(x), []))
    return parts


def _read_raw(path: Path) -> dict[str, Raw]:
    if path.is_dir():
        return read_saved(path) if is_saved(path) else read_folder(path)
    if path.suffix in _READERS:
        return _READERS[path.suffix](path)
    if path.exists():
        raise Damage(f"it is no folder and does not end in {' or '.join(_READERS)}")
    raise FileNotFoundError(2, "there is no such file or folder")


def is_saved(path: Path) -> bool:
    """Whether a folder is a Hugging Face data set that was saved."""
    return any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))


def shards_in(path: Path) -> list[Path]:
    """The .npz or .parquet files of a folder that holds samples in several of them, by name."""
    if not path.is_dir() or is_saved(path):
        return []
    files = (file for file in path.iterdir() if not file.name.startswith("."))
    return sorted(file for file in files if file.suffix in _READERS and file.is_file())


def _joined(path: Path, parts: list[Part]) -> Part:
    if len({(p.items.shape[1:], p.items.dtype, type(p.labels[0])) for p in parts}) > 1:
        raise OcilError(f"{path}: its files differ; give all of them items and labels of one kind.")
    labels = [label for part in parts for label in part.labels]
    return Part(np.concatenate([part.items for part in parts]), labels)


def read_folder(path: Path) -> dict[str, Raw]:
    """One folder per class, or train/ and perhaps test/ (or val/) with one folder per class each.

    Of several parts to test on the first of TESTS counts. Hidden folders hold no class.
    """
    tree = FolderTree(path)
    files = [name.split("/") for name in sorted(tree.names())]
    files = [f for f in files if f[-1].lower().endswith(ENDINGS)]
    files = [f for f in files if not any(p.startswith(".") or p == "__MACOSX" for p in f)]
    tops = {f[0] for f in files if len(f) > 1}
    test = next((t for t in TESTS if t in tops), None)
    found: dict[str, list[str]] = {"train": []}
    if tops <= {"train", *TESTS} and any(f[0] == "train" and len(f) > 2 for f in files):
        found = {"train": ["train"]} | ({"test": [test]} if test else {})
    parts = {}
    for part, prefix in found.items():
        depth = len(prefix)
        own = [f for f in files if len(f) > depth + 1 and f[:depth] == prefix]
        if not own:
            raise Damage("it holds no folder with pictures; make one folder per class")
        parts[part] = Raw(
            lambda i, own=own: tree.read("/".join(own[i]), MAX_FILE_BYTES),
            [f[depth] for f in own],
            [str(path.joinpath(*f)) for f in own],
        )
    return parts


def _as_dataset(path: Path, parts: dict[str, Part]) -> Dataset:
    """Integer labels in the order of the sorted names, and a test part if there is none."""
    x, labels = parts["train"]
    names = sorted(set(labels), key=lambda label: (isinstance(label, str), label))
    ids = {label: i for i, label in enumerate(names)}
    y = np.array([ids[label] for label in labels], np.int64)
    if "test" in parts:
        test_x, labels = parts["test"]
        unknown = [label for label in labels if label not in ids]
        if unknown:
            raise OcilError(
                f"{path}: class {plain(unknown[0], 80)} is in the test part but not in train."
            )
        test_y = np.array([ids[label] for label in labels], np.int64)
    else:
        for name, count in zip(names, np.bincount(y), strict=True):
            if count < 2:
                raise OcilError(
                    f"{path}: class {plain(name, 80)} has 1 item; a run needs 2 or more, one to "
                    "test."
                )
        held = every_fifth(y)
        x, y, test_x, test_y = x[~held], y[~held], x[held], y[held]
    if x.shape[1:] != test_x.shape[1:] or x.dtype != test_x.dtype:
        raise OcilError(f"{path}: items of train and test differ; give both one shape and type.")
    for array in (x, y, test_x, test_y):
        array.flags.writeable = False
    known = fingerprint((x, y, test_x, test_y))
    stem = re.sub(r"[^a-z0-9]+", "-", path.resolve().stem.lower()).strip("-")[:30] or "own"
    shown = tuple(plain(name, 80) for name in names)
    return Dataset(f"{stem}-{known[:8]}", x, y, test_x, test_y, shown, known)
