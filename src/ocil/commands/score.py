"""`ocil score`: how well a model file answers for labelled data of your own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ocil.commands.correct import label_of
from ocil.commands.items import picture_shape
from ocil.commands.parsing import Positional, say
from ocil.errors import OcilError
from ocil.text import plain

if TYPE_CHECKING:
    from ocil.labels import Label

MOST = 30  # classes that are listed, and named in the picture


@dataclass(frozen=True)
class Score:
    """Accuracy of a model file on labelled data, whole and for each class, and what it confuses."""

    model: Positional[Path]
    """The model file."""
    data: Positional[Path]
    """Folder with one folder per class, .npz, .parquet, or a saved Hugging Face data set; of data
    in parts the test part."""
    out: Path | None = None
    """Where to draw the confusion matrix, .png or .pdf; MODEL.confusion.png unless given."""
    bad_images: Literal["fail", "skip"] = "fail"
    """What a picture that cannot be decoded does."""

    def __call__(self) -> None:
        from ocil.classifier import load
        from ocil.data.own import read_own
        from ocil.run.process import set_threads

        set_threads(1)
        model = load(self.model)
        parts = read_own(self.data, None, self.bad_images, picture_shape(model))
        part = parts.get("test", parts["train"])
        known = model.classes_.tolist()
        labels = [label if label in known else label_of(model, str(label)) for label in part.labels]
        rows = [i for i, label in enumerate(labels) if label in known]
        if not rows:
            raise OcilError(f"{self.data} holds no class that {self.model} has learned.")
        y = np.array([known.index(labels[i]) for i in rows])
        answers = model.scores(part.items[rows]).argmax(1)
        counts = np.zeros((len(known), len(known)), np.int64)
        np.add.at(counts, (y, answers), 1)
        say(*summary(counts, known))
        if len(rows) < len(labels):
            left = f"{len(labels) - len(rows)} samples of classes that were never learned"
            say(f"{left} are left out.")
        out = self.out or self.model.with_name(f"{self.model.name}.confusion.png")
        draw(counts, known, out)
        say(f"Confusion matrix: {out}")


def summary(counts: np.ndarray, labels: list[Label]) -> list[str]:
    """Sentences on a confusion matrix (C, C), a row for each true class.

    >>> summary(np.array([[3, 1], [0, 0]]), ["cat", "dog"])
    ['75.0 % of 4 samples right.', '  cat: 75.0 % of 4, else mostly dog']
    """
    right, total = int(counts.trace()), int(counts.sum())
    lines = [f"{100 * right / total:.1f} % of {total} samples right."]
    sizes = counts.sum(1)
    shares = counts.diagonal() / np.maximum(sizes, 1)
    order = [c for c in np.argsort(shares, kind="stable").tolist() if sizes[c]]
    for c in order[:MOST]:
        others = counts[c].copy()
        others[c] = 0
        most = f", else mostly {plain(labels[int(others.argmax())], 80)}" if others.any() else ""
        lines.append(f"  {plain(labels[c], 80)}: {100 * shares[c]:.1f} % of {sizes[c]}{most}")
    left = len(order) - MOST
    return lines + ([f"  and {left} more classes, all better"] if left > 0 else [])


def draw(counts: np.ndarray, labels: list[Label], out: Path) -> None:
    """The share of each true class (row) that got each answer (column), in percent."""
    from ocil.report import figures
    from ocil.report.charts import Axis, Chart

    sizes = counts.sum(1, keepdims=True)
    shares = np.where(sizes > 0, 100 * counts / np.maximum(sizes, 1), np.nan)
    last = len(counts)
    x, y = Axis("answer", 0.5, last + 0.5, "whole"), Axis("class", last + 0.5, 0.5, "whole")
    figure = figures.grid([Chart("heat", "", x, y, (), height=330, matrix=shares)], side=4.8)
    if last <= MOST:
        names = [plain(label, 24) for label in labels]
        figure.axes[0].set_xticks(range(1, last + 1), names, rotation=90)
        figure.axes[0].set_yticks(range(1, last + 1), names)
    figures.save(figure, out)
