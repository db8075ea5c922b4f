"""`ocil learn`, `ocil predict`, `ocil inspect`: a model file on data of your own."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tyro

from ocil.commands.parsing import parse, say
from ocil.data.arrays import read_items
from ocil.data.damage import reading_own
from ocil.data.own import Part, read_own
from ocil.data.pictures import FILE_BYTES, decode_all
from ocil.errors import OcilError
from ocil.plainfile import open_plain
from ocil.report.text import csv_cell, plain

if TYPE_CHECKING:
    from ocil.classifier import Classifier

CHUNK = 50  # samples between two looks at the progress bar


@dataclass(frozen=True)
class LearnOptions:
    """Teach a model file new classes, or more of old ones; it is made if it is not there.

    The samples are learned once, in random order. The file CONTAINS TRAINING IMAGES (its memory).
    """

    data: tyro.conf.Positional[Path]
    """Folder with one folder per class, .npz, .parquet, or a Hugging Face data set on disk."""
    model: Path
    """The model file to make or to continue."""
    method: str | None = None
    """For a new model: the method (`ocil methods`); otc unless given."""
    memory: int | None = None
    """For a new model: images that its replay memory holds; 500 unless given."""
    net: str | None = None
    """For a new model: auto, mlp, resnet18, resnet18-global or identity."""
    seed: int | None = None
    """For a new model: decides all draws; 0 unless given."""
    steps: int | None = None
    """For a new model: gradient steps a batch of 10; with few samples a network needs more."""
    lr: float | None = None
    """For a new model: the learning rate."""
    resize: int | None = None
    """For a new model: side in pixels to which pictures are scaled."""
    bad_images: Literal["fail", "skip"] = "fail"
    """What a picture that cannot be decoded does."""


def learn(words: list[str]) -> None:
    """Continue a model, or start one; the file is written at the end, whole or not at all."""
    options = parse(LearnOptions, words, "ocil learn")
    from ocil.classifier import Classifier, load
    from ocil.run.process import set_threads

    set_threads(1)  # the number of threads decides the bits
    given = {k: getattr(options, k) for k in ("method", "memory", "net", "seed", "steps", "lr")}
    given = {k: v for k, v in given.items() if v is not None}
    if not options.model.parent.is_dir():
        raise OcilError(f"There is no folder {options.model.parent} for the model; make it first.")
    began = _version(options.model)
    if options.model.exists():
        if given or options.resize is not None:
            named = [*given, *([] if options.resize is None else ["resize"])]
            flags = ", ".join(f"--{name}" for name in named)
            raise OcilError(
                f"{options.model} exists and keeps its settings; leave out {flags}, or choose "
                "another file for a new model."
            )
        model = load(options.model)
        part = read_own(options.data, None, options.bad_images, picture_shape(model))["train"]
    else:
        model = Classifier(**given)
        part = read_own(options.data, options.resize, options.bad_images)["train"]
    before = len(model.classes_) if model.__sklearn_is_fitted__() else 0
    draw = np.random.default_rng([model.seed, sum(model.counts_.values()) if before else 0])
    order = draw.permutation(len(part.labels))
    _learn_all(model, part, order)
    if _version(options.model) != began:
        raise OcilError(
            f"Something else has written {options.model} in the meantime; what it wrote was kept. "
            "Run this command again to teach it as well."
        )
    model.save(options.model)
    say(
        f"Learned {len(order)} samples: {len(model.classes_)} classes, "
        f"{len(model.classes_) - before} of them new. Model: {options.model} (it contains training "
        "images)."
    )


def _version(file: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file is replaced; None while there is none."""
    if not file.exists():
        return None
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _learn_all(model: Classifier, part: Part, order: np.ndarray) -> None:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        line = bar.add_task("learning", total=len(order))
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            model.partial_fit(part.items[rows], [part.labels[i] for i in rows])
            bar.update(line, advance=len(rows))
    model.flush()


def picture_shape(model: Classifier) -> Any:
    """(C, H, W) for a model of uint8 pictures, else None."""
    form = model._form
    return form.shape if form and len(form.shape) == 3 and form.dtype == "uint8" else None


@dataclass(frozen=True)
class PredictOptions:
    """Labels for pictures, or for the rows of .npy and .npz arrays."""

    model: tyro.conf.Positional[Path]
    """The model file."""
    files: tyro.conf.Positional[list[Path]]
    """Pictures; or .npy, .npz (array x) with many items each."""
    csv: bool = False
    """Comma-separated values instead of a table."""
    bad_images: Literal["fail", "skip"] = "fail"
    """What a picture that cannot be decoded does."""


def predict(words: list[str]) -> None:
    """One line a file, or a row of it: name, label, probability."""
    options = parse(PredictOptions, words, "ocil predict")
    from ocil.classifier import load
    from ocil.run.process import set_threads

    if not options.files:
        raise OcilError("Name the files to predict: pictures, or .npy and .npz arrays.")
    set_threads(1)
    model = load(options.model)
    lines: list[tuple[str, str, str]] = []
    arrays = [file for file in options.files if file.suffix.lower() in (".npy", ".npz")]
    pictures = [file for file in options.files if file not in arrays]
    if pictures:
        lines += _pictures(model, pictures, options.bad_images)
    for file in arrays:
        lines += _answers(model, _array(file), lambda i, f=file: f"{f}[{i}]")
    _show(lines, options.csv)


def _pictures(model: Classifier, files: list[Path], bad: Any) -> list[tuple[str, str, str]]:
    shape = picture_shape(model)
    if shape is None:
        raise OcilError(
            f"The model learned {model._form}, no pictures of uint8; give .npy or .npz."
        )
    names = [str(file) for file in files]

    def read(i: int) -> bytes:
        with reading_own(files[i]), open_plain(files[i]) as stream:
            return stream.read(FILE_BYTES)

    x, kept = decode_all(names, read, None, bad, shape)
    return _answers(model, x, lambda i: names[kept[i]])


def _array(path: Path) -> np.ndarray:
    with reading_own(path):
        return read_items(path)


def _answers(model: Classifier, x: np.ndarray, name: Any) -> list[tuple[str, str, str]]:
    shares = model.predict_proba(x)
    best, labels = shares.argmax(1), model.classes_
    return [(name(i), str(labels[b]), f"{shares[i, b]:.4f}") for i, b in enumerate(best)]


def _show(lines: list[tuple[str, str, str]], as_csv: bool) -> None:
    headings = ("file", "label", "probability")
    if as_csv:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([headings, *([csv_cell(plain(c, 1200)) for c in row] for row in lines)])
        sys.stdout.write(text.getvalue())
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(*headings)
    for row in lines:
        table.add_row(*(Text(plain(cell, 300)) for cell in row))
    say(table)


@dataclass(frozen=True)
class InspectOptions:
    """Classes, counts, memory pictures and the health of the mixtures of a model file."""

    model: tyro.conf.Positional[Path]
    """The model file."""
    out: Path | None = None
    """Where to write the page; MODEL.html unless given. It shows training images."""


def inspect(words: list[str]) -> None:
    """A table for the terminal and a page for the browser."""
    options = parse(InspectOptions, words, "ocil inspect")
    from ocil import modelfile
    from ocil.inspection import describe, page
    from ocil.run.files import write_atomic

    content = modelfile.read(options.model)
    facts = describe(content)
    out = options.out or options.model.with_name(f"{options.model.name}.html")
    write_atomic(out, page(facts).encode())
    say(*facts.lines, f"Page with the pictures of the memory: {out}")
