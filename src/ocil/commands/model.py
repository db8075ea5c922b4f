"""`ocil predict`, `ocil inspect`: what a model file says of data of your own, and of itself."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ocil.commands.items import read_files
from ocil.commands.parsing import Positional, say
from ocil.errors import OcilError
from ocil.files import write_atomic
from ocil.text import csv_cell, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ocil.classifier import Classifier
    from ocil.modelfile import ModelFile

Line = tuple[str, ...]  # name, label, probability, and perhaps more of these


@dataclass(frozen=True)
class Predict:
    """Labels for pictures, or for the rows of .npy and .npz arrays."""

    model: Positional[Path]
    """The model file."""
    files: Positional[tuple[Path, ...]]
    """Pictures, folders of pictures, patterns such as "new/*.jpg"; or .npy, .npz (array x) with
    many items each."""
    top: int = 1
    """How many labels of each item are shown, the likeliest first."""
    unknown: bool = False
    """Items that are foreign to all classes are called unknown, as are 5 % of known ones."""
    csv: bool = False
    """Comma-separated values instead of a table."""
    bad_images: Literal["fail", "skip"] = "fail"
    """What a picture that cannot be decoded does."""

    def __call__(self) -> None:
        from ocil.classifier import load
        from ocil.run.process import set_threads

        if self.top < 1:
            raise OcilError(f"--top is {self.top} but must be at least 1.")
        set_threads(1)
        model = load(self.model)
        x, names = read_files(model, self.files, self.bad_images)
        answers = _answers(model, x, self.top, self.unknown)
        _show([(name, *cells) for name, cells in zip(names, answers, strict=True)], self.csv)


def _answers(model: Classifier, x: np.ndarray, top: int, unknown: bool) -> list[list[str]]:
    """Labels and probabilities of each item, the likeliest first."""
    shares, labels = model.predict_proba(x), model.classes_
    foreign = np.zeros(len(x), bool)
    if unknown:
        foreign = model.novelty(x) > model.novelty_threshold()
    order = np.argsort(-shares, 1, kind="stable")[:, :top]
    found = [
        [cell for c in best for cell in (str(labels[c]), f"{row[c]:.4f}")]
        for best, row in zip(order, shares, strict=True)
    ]
    return [["unknown", "", *cells][: len(cells)] if f else cells
            for cells, f in zip(found, foreign, strict=True)]  # fmt: skip


def _show(lines: list[Line], as_csv: bool) -> None:
    pairs = range(1, (len(lines[0]) + 1) // 2) if lines else (1,)
    more = [f"{name} {i}" if i > 1 else name for i in pairs for name in ("label", "probability")]
    headings = ("file", *more)
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


def _judged(file: Path, content: ModelFile) -> Iterator[str]:
    """What the model says of itself, if it can be made without a module of yours."""
    if content.note["module"] is None and content.note["scalars"]["labels"]:
        from ocil.classifier import load
        from ocil.commands.judgement import judgement

        yield from judgement(load(file))


@dataclass(frozen=True)
class Inspect:
    """How good a model file is, what it confuses; classes, counts, memory pictures, mixtures."""

    model: Positional[Path]
    """The model file."""
    out: Path | None = None
    """Where to write the page; MODEL.html unless given. It shows training images."""

    def __call__(self) -> None:
        from ocil import modelfile
        from ocil.inspection import describe, page

        content = modelfile.read(self.model)
        facts = describe(content)
        out = self.out or self.model.with_name(f"{self.model.name}.html")
        write_atomic(out, page(facts, said := list(_judged(self.model, content))).encode())
        say(*said, *facts.lines, f"Page with the pictures of the memory: {out}")
