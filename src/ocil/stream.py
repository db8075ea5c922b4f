"""From a data set to a stream: seed -> class order -> tasks -> single-pass batches.

A stream is a pure function of labels and settings. Batch number `step` can be asked for at any
time, so the step index is the whole cursor and resuming needs nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from ocil.errors import OcilError
from ocil.rng import derive_seed
from ocil.settings import Settings

HELD_OUT = 0.1  # share of each class's training images that `validate` keeps for evaluation


@dataclass(frozen=True)
class Batch:
    """What a learner is given: x (n, ...) uint8 or float32, y (n,) class ids, and the position."""

    x: torch.Tensor
    y: torch.Tensor
    step: int = 0
    task: int | None = None
    epoch: int = 0
    epochs: int = 1


class BatchIndex(NamedTuple):
    """Batch number `step` before the images are read: their positions in the training set."""

    step: int
    task: int
    epoch: int
    indices: np.ndarray
    ends_task: bool


class Stream:
    """Class order, tasks and batches of one run.

    `tasks` are lists of labels in order of arrival; `order="joint"` streams all classes as one
    shuffled pass but keeps the tasks for evaluation.
    """

    def __init__(self, labels: np.ndarray, settings: Settings) -> None:
        self.settings = settings
        classes = np.unique(labels)
        if settings.classes_per_task > len(classes):
            raise OcilError(
                f"Setting classes_per_task is {settings.classes_per_task} but the data set has "
                f"only {len(classes)} classes; choose a smaller number."
            )
        order = self._draw("classes").permutation(classes).tolist()
        size = settings.classes_per_task
        self.tasks: list[list[int]] = [order[i : i + size] for i in range(0, len(order), size)]
        train, self.held_out = self._divide(labels)
        phases = self.tasks if settings.order == "split" else [order]
        self._phases = [train[np.isin(labels[train], phase)] for phase in phases]
        self._counts = [-(-len(phase) // settings.batch) for phase in self._phases]
        self._ends = np.cumsum(self._counts) * settings.epochs
        self.n_batches = int(self._ends[-1])
        self.images = sum(map(len, self._phases)) * settings.epochs

    def _draw(self, purpose: str) -> np.random.Generator:
        return np.random.default_rng(derive_seed(self.settings.seed, f"stream/{purpose}"))

    def _divide(self, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions that are streamed and positions held out, class by class."""
        draw, train, held = self._draw("split"), [], []
        for label in np.unique(labels):
            own = draw.permutation(np.flatnonzero(labels == label))
            cut = max(1, round(HELD_OUT * len(own))) if self.settings.validate else 0
            if cut == len(own):
                raise OcilError(f"Class {label} has 1 training image; --validate needs 2 or more.")
            held.append(own[:cut])
            train.append(own[cut:][: self.settings.limit_per_class])
        return np.sort(np.concatenate(train)), np.sort(np.concatenate(held))

    def batches(self, start: int = 0) -> Iterator[BatchIndex]:
        """Batches from number `start` on; the last of a task may be smaller, none is dropped."""
        first, size, epochs = 0, self.settings.batch, self.settings.epochs
        for phase, count in enumerate(self._counts):
            task = len(self.tasks) - 1 if self.settings.order == "joint" else phase
            for epoch in range(epochs):
                if first + count > start:
                    draw = self._draw(f"order/{phase}/{epoch}")
                    order = draw.permutation(self._phases[phase])
                    for b in range(max(0, start - first), count):
                        ends = b == count - 1 and epoch == epochs - 1
                        indices = order[b * size : (b + 1) * size]
                        yield BatchIndex(first + b, task, epoch, indices, ends)
                first += count

    def phase_indices(self, task: int) -> np.ndarray:
        """Positions of all images of a task, for methods that train at its end."""
        return self._phases[0 if self.settings.order == "joint" else task]

    def task_ends(self) -> list[int]:
        """Number of batches learned when each task (or the joint pass) is over."""
        return self._ends.tolist()

    def sha256(self) -> str:
        """Fingerprint of tasks, order of images and batch borders."""
        digest = hashlib.sha256(repr(self.tasks).encode())
        for batch in self.batches():
            digest.update(np.ascontiguousarray(batch.indices, dtype="<i8").tobytes() + b"|")
        return digest.hexdigest()


def probe_indices(labels: np.ndarray, count: int) -> np.ndarray:
    """Fixed, class-balanced positions for the anytime curve: the same for every seed."""
    classes = np.unique(labels)
    draw = np.random.default_rng(derive_seed(0, "probe"))
    chosen = []
    for i, label in enumerate(classes):
        quota = count // len(classes) + (i < count % len(classes))
        chosen.append(draw.permutation(np.flatnonzero(labels == label))[:quota])
    return np.sort(np.concatenate(chosen))
