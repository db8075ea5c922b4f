"""`ocil predict`, `ocil inspect`: what a model file says of data of your own, and of itself."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ocil.commands.parsing import Positional, say
from ocil.data.arrays import read_items
from ocil.data.pictures import MAX_FILE_BYTES, decode_all
from ocil.data.reader import reading
from ocil.errors import OcilError
from ocil.files import read_plain, write_atomic
from ocil.text import csv_cell, plain

if TYPE_CHECKING:
    from ocil.classifier import Classifier

Line = tuple[str, str, str]  # name, label, probability


def picture_shape(model: Classifier) -> Any:
    """(C, H, W) for a model of uint8 pictures, else None."""
    form = model._learned.form if model._learned else None
    return form.shape if form and len(form.shape) == 3 and form.dtype == "uint8" else None


@dataclass(frozen=True)
class Predict:
    """Labels for pictures, or for the rows of .npy and .npz arrays."""

    model: Positional[Path]
    """The model file."""
    files: Positional[tuple[Path, ...]]
    """Pictures; or .npy, .npz (array x) with many items each."""
    csv: bool = False
    """Comma-separated values instead of a table."""
    bad_images: Literal["fail", "skip"] = "fail"
    """What a picture that cannot be decoded does."""

    def __call__(self) -> None:
        from ocil.classifier import load
        from ocil.run.process import set_threads

        if not self.files:
            raise OcilError("Name the files to predict: pictures, or .npy and .npz arrays.")
        set_threads(1)
        model = load(self.model)
        lines: list[Line] = []
        arrays = [file for file in self.files if file.suffix.lower() in (".npy", ".npz")]
        pictures = [file for file in self.files if file not in arrays]
        if pictures:
            lines += _pictures(model, pictures, self.bad_images)
        for file in arrays:
            answers = enumerate(_answers(model, _array(file)))
            lines += [(f"{file}[{i}]", *answer) for i, answer in answers]
        _show(lines, self.csv)


def _pictures(model: Classifier, files: list[Path], bad: Any) -> list[Line]:
    shape = picture_shape(model)
    if shape is None:
        raise OcilError(
            f"The model learned {model._fitted().form}, no pictures of uint8; give .npy or .npz."
        )

    def read(i: int) -> bytes:
        return read_plain(files[i], MAX_FILE_BYTES)

    names = [str(file) for file in files]
    x, kept = decode_all(names, read, None, bad, shape)
    return [(names[i], *answer) for i, answer in zip(kept, _answers(model, x), strict=True)]


def _array(path: Path) -> np.ndarray:
    with reading(path):
        return read_items(path)


def _answers(model: Classifier, x: np.ndarray) -> list[tuple[str, str]]:
    shares = model.predict_proba(x)
    labels = model.classes_[shares.argmax(1)]
    return [(str(label), f"{p:.4f}") for label, p in zip(labels, shares.max(1), strict=True)]


def _show(lines: list[Line], as_csv: bool) -> None:
    headings = ("file", "label", "probability")
    if as_csv:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([headings, *([csv_cell(c, 1200) for c in row] for row in lines)])
        sys.stdout.write(text.getvalue())
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings)
    for row in lines:
        table.add_row(*(Text(plain(cell, 300)) for cell in row))
    say(table)


@dataclass(frozen=True)
class Inspect:
    """Classes, counts, memory pictures and the health of the mixtures of a model file."""

    model: Positional[Path]
    """The model file."""
    out: Path | None = None
    """Where to write the page; MODEL.html unless given. It shows training images."""

    def __call__(self) -> None:
        from ocil import modelfile
        from ocil.inspection import describe, page

        facts = describe(modelfile.read(self.model))
        out = self.out or self.model.with_name(f"{self.model.name}.html")
        write_atomic(out, page(facts).encode())
        say(*facts.lines, f"Page with the pictures of the memory: {out}")
