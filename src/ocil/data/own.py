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
from ocil.data import arrays, tables
from ocil.data.damage import Damage, reading_own
from ocil.data.dataset import Dataset, fingerprint
from ocil.data.pictures import ENDINGS, FILE_BYTES, Bad, Shape, decode_all
from ocil.data.source import printable
from ocil.data.sources import SOURCES
from ocil.data.tree import FolderTree
from ocil.errors import OcilError

_SUFFIXES = (".npz", ".parquet")


class Part(NamedTuple):
    """Items (n, d) or (n, C, H, W), uint8 or float32, and a label for each."""

    items: np.ndarray
    labels: list[int | str]


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
        parts = read_own(self.path, self.resize, self.bad_images)
        return as_dataset(self.path, parts)


def looks_own(text: str) -> bool:
    """Whether the value of --data is a path and no name of a data set."""
    if text in SOURCES:
        return False
    return Path(text).exists() or os.sep in text or "/" in text or text.endswith(_SUFFIXES)


def read_own(
    path: Path, resize: int | None = None, bad: Bad = "fail", shape: Shape | None = None
) -> dict[str, Part]:
    """The parts train and, where there is one, test; pictures become `shape` if it is given."""
    if resize is not None and not 1 <= resize <= 4096:
        raise OcilError(f"--resize is {resize}; give 1 to 4096 pixels.")
    with reading_own(path):
        if path.is_dir():
            if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
                raw = tables.read_saved(path)
            else:
                return _folder(path, resize, bad, shape)
        elif path.suffix in _SUFFIXES:
            raw = (arrays.read_npz if path.suffix == ".npz" else tables.read_parquet)(path)
        elif path.exists():
            raise Damage(f"it is no folder and does not end in {' or '.join(_SUFFIXES)}")
        else:
            raise FileNotFoundError(2, "there is no such file or folder")
        return _parts(raw, resize, bad, shape)


def _parts(
    raw: dict[str, arrays.Raw], resize: int | None, bad: Bad, shape: Shape | None
) -> dict[str, Part]:
    parts = {}
    for name, (items, labels) in raw.items():
        if isinstance(items, list):
            rows = [f"row {i} of {name}" for i in range(len(items))]
            x, kept = decode_all(rows, lambda i, items=items: items[i], resize, bad, shape)
            labels = [labels[i] for i in kept]
            shape = shape or (x.shape[1], x.shape[2], x.shape[3])
        else:
            x = samples.items(items, "auto")
        parts[name] = Part(x, samples.labels(labels, len(x), []))
    return parts


def _folder(path: Path, resize: int | None, bad: Bad, shape: Shape | None) -> dict[str, Part]:
    """One folder per class, or train/ and perhaps test/ (or val/) with one folder per class each.

    Of several parts to test on the first of arrays.TESTS counts. Hidden folders hold no class.
    """
    files = [name.split("/") for name in sorted(FolderTree(path).names())]
    files = [f for f in files if f[-1].lower().endswith(ENDINGS)]
    files = [f for f in files if not any(p.startswith(".") or p == "__MACOSX" for p in f)]
    tops = {f[0] for f in files if len(f) > 1}
    test = next((t for t in arrays.TESTS if t in tops), None)
    nested = tops <= {"train", *arrays.TESTS} and any(f[0] == "train" and len(f) > 2 for f in files)
    found = {"train": "train/"} if nested else {"train": ""}
    if nested and test:
        found["test"] = f"{test}/"
    tree, parts = FolderTree(path), {}
    for part, prefix in found.items():
        depth = 1 if prefix else 0
        own = ["/".join(f) for f in files if len(f) > depth + 1 and "/".join(f).startswith(prefix)]
        if not own:
            raise Damage("it holds no folder with pictures; make one folder per class")
        x, kept = decode_all(
            [str(path / name) for name in own],
            lambda i, own=own: tree.read(own[i], FILE_BYTES),
            resize,
            bad,
            shape,
        )
        shape = shape or (x.shape[1], x.shape[2], x.shape[3])
        parts[part] = Part(x, [own[i].split("/")[depth] for i in kept])
    return parts


def as_dataset(path: Path, parts: dict[str, Part]) -> Dataset:
    """Integer labels in the order of the sorted names, and a test part if there is none."""
    train = parts["train"]
    names = sorted(set(train.labels), key=lambda label: (isinstance(label, str), label))
    ids = {label: i for i, label in enumerate(names)}
    y = np.array([ids[label] for label in train.labels], np.int64)
    if "test" in parts:
        unknown = [label for label in parts["test"].labels if label not in ids]
        if unknown:
            raise OcilError(
                f"{path}: class {printable(unknown[0])} is in the test part but not in train."
            )
        test = parts["test"].items, np.array([ids[n] for n in parts["test"].labels], np.int64)
        both = (train.items, y), test
    else:
        held = _held_out(y, names, path)
        both = (train.items[~held], y[~held]), (train.items[held], y[held])
    (x, y), (test_x, test_y) = both
    if x.shape[1:] != test_x.shape[1:] or x.dtype != test_x.dtype:
        raise OcilError(f"{path}: items of train and test differ; give both one shape and type.")
    for array in (x, y, test_x, test_y):
        array.flags.writeable = False
    known = fingerprint((x, y, test_x, test_y))
    stem = re.sub(r"[^a-z0-9]+", "-", path.resolve().stem.lower()).strip("-")[:30] or "own"
    shown = tuple(printable(name) for name in names)
    return Dataset(f"{stem}-{known[:8]}", x, y, test_x, test_y, shown, known)


def _held_out(y: np.ndarray, names: list[int | str], path: Path) -> np.ndarray:
    """Every fifth item of each class, or its last: (n,) bool."""
    held = np.zeros(len(y), bool)
    for label, name in enumerate(names):
        own = np.flatnonzero(y == label)
        if len(own) < 2:
            raise OcilError(
                f"{path}: class {printable(name)} has 1 item; a run needs 2 or more, one to test."
            )
        held[own[4::5] if len(own) > 4 else own[-1:]] = True
    return held
