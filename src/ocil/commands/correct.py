"""`ocil forget`, `ocil relabel`: take back what a model file has learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ocil.commands.items import read_files
from ocil.commands.parsing import Positional, say
from ocil.errors import OcilError
from ocil.files import WAIT, write_atomic, writing

if TYPE_CHECKING:
    from ocil.classifier import Classifier
    from ocil.labels import Label


@dataclass(frozen=True)
class Forget:
    """Take a class out of a model file, or, where files are named, these samples of it.

    Memory, means, mixtures, head rows and counts forget; weights that were trained on the samples
    and, without files, the covariance that all classes share keep a trace.
    """

    model: Positional[Path]
    """The model file, which is changed."""
    label: Positional[str]
    """The class."""
    files: Positional[tuple[Path, ...]] = ()
    """Samples as they were learned: pictures, folders, or .npy and .npz; none: the whole class."""
    wait: float = WAIT
    """Seconds to wait for another process that is writing the model."""

    def __call__(self) -> None:
        def change(model: Classifier) -> str:
            label = label_of(model, self.label)
            if not self.files:
                model.forget(label)
                return f"Class {self.label} is forgotten"
            x, _ = read_files(model, self.files)
            model.forget_samples(x, [label] * len(x))
            return f"{len(x)} samples of class {self.label} are forgotten"

        _change(self.model, self.wait, change)


@dataclass(frozen=True)
class Relabel:
    """Give samples that a model file has learned under a wrong label their right one."""

    model: Positional[Path]
    """The model file, which is changed."""
    files: Positional[tuple[Path, ...]]
    """Samples as they were learned: pictures, folders, or .npy and .npz."""
    was: str
    """The label with which they were learned."""
    label: str
    """Their right label, known or new."""
    wait: float = WAIT
    """Seconds to wait for another process that is writing the model."""

    def __call__(self) -> None:
        def change(model: Classifier) -> str:
            x, _ = read_files(model, self.files)
            old, new = ([label_of(model, text)] * len(x) for text in (self.was, self.label))
            model.relabel(x, old, new)
            return f"{len(x)} samples of class {self.was} are of class {self.label}"

        _change(self.model, self.wait, change)


def _change(file: Path, wait: float, change: Callable[[Classifier], str]) -> None:
    from ocil.classifier import load
    from ocil.run.process import set_threads

    set_threads(1)
    with writing(file, wait):
        model = load(file)
        said = change(model)
        if model._learned is None:
            raise OcilError(f"Nothing would be left of {file}; delete the file instead.")
        write_atomic(file, model._blob())
    count = len(model.classes_) if model.__sklearn_is_fitted__() else 0
    say(f"{said}. Model: {file}, {count} classes.")


def label_of(model: Classifier, text: str) -> Label:
    """A word of the command line as a label of the model's kind."""
    from ocil.corrections import known_labels

    now = model._learned
    kind = type(known_labels(now)[0]) if now else str
    if kind is bool and text in ("True", "False"):
        return text == "True"
    try:
        return kind(text) if kind in (int, float) else text
    except ValueError as error:
        wanted: Literal["integers", "numbers"] = "integers" if kind is int else "numbers"
        raise OcilError(f"Label '{text}' is none; the model's labels are {wanted}.") from error
