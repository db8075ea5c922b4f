"""Counting correct answers per class; every metric is derived from these counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ocil.learners.learner import Learner
from ocil.session import Session

CHUNK = 500


class KeptFeatures:
    """Features of evaluation images in the spaces that do not change, each computed once a run.

    They are no state: without them, or above `MOST` bytes, features are computed again.
    """

    MOST = 1 << 30

    def __init__(self, items: int) -> None:
        self.items = items
        self.rows: dict[str, torch.Tensor] = {}  # (items, d) by space
        self.known: dict[str, torch.Tensor] = {}  # (items,) which are there
        self.version: dict[str, int] = {}

    @property
    def nbytes(self) -> int:
        return sum(rows.numel() * rows.element_size() for rows in self.rows.values())

    @torch.inference_mode()
    def of(self, learner: Learner, x: torch.Tensor, numbers: np.ndarray) -> dict[str, torch.Tensor]:
        """Features of images x (n, ...), which have these numbers, by space."""
        found = {}
        for space, encoder in learner.fixed.items():
            at = torch.from_numpy(numbers)
            if self.version.get(space) != encoder.version:  # another encoder by now
                self.rows.pop(space, None)
                self.version[space] = encoder.version
            if space not in self.rows:
                width = encoder.encode(x[:1]).shape[1]
                if 4 * width * self.items > self.MOST:
                    continue
                self.rows[space] = torch.empty(self.items, width, device=learner.device)
                self.known[space] = torch.zeros(self.items, dtype=torch.bool)
            new = ~self.known[space][at]
            if bool(new.any()):
                self.rows[space][at[new]] = encoder.encode(x[new])
                self.known[space][at] = True
            found[space] = self.rows[space][at]
        return found


def evaluate(
    session: Session,
    images: np.ndarray,
    labels: np.ndarray,
    classes: int,
    readouts: Sequence[str],
    kept: KeptFeatures | None = None,
    numbers: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """Correct and total per label for each read-out, on the images of classes seen so far.

    images (n, ...), labels (n,) in 0..classes-1. Returns dictionaries with readout, correct and
    total, lists indexed by label; total is 0 for a label that has not been seen. `numbers` (n,) are
    those of the images in `kept`.
    """
    seen = np.asarray(session.labels.classes, dtype=np.int64)
    chosen = np.flatnonzero(np.isin(labels, seen))
    total = np.bincount(labels[chosen], minlength=classes)
    correct = {name: np.zeros(classes, dtype=np.int64) for name in readouts}
    learner = session.learner
    for start in range(0, len(chosen), CHUNK):
        part = chosen[start : start + CHUNK]
        x = torch.from_numpy(np.ascontiguousarray(images[part]))
        features = learner.features(x)
        if kept is not None and numbers is not None:
            features.update(kept.of(learner, x, numbers[part]))
        for name, scores in learner.all_scores(features, readouts).items():
            answer = seen[scores.argmax(1).cpu().numpy()]
            right = labels[part][answer == labels[part]]
            correct[name] += np.bincount(right, minlength=classes)
    return [
        {"readout": name, "correct": counts.tolist(), "total": total.tolist()}
        for name, counts in correct.items()
    ]
