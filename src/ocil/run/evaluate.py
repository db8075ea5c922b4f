"""Counting correct answers per class; every metric is derived from these counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ocil.session import Session

CHUNK = 500


def evaluate(
    session: Session, images: np.ndarray, labels: np.ndarray, classes: int, readouts: Sequence[str]
) -> list[dict[str, Any]]:
    """Correct and total per label for each read-out, on the images of classes seen so far.

    images (n, ...), labels (n,) in 0..classes-1. Returns dictionaries with readout, correct and
    total, lists indexed by label; total is 0 for a label that has not been seen.
    """
    seen = np.asarray(session.labels.classes, dtype=np.int64)
    chosen = np.flatnonzero(np.isin(labels, seen))
    total = np.bincount(labels[chosen], minlength=classes)
    correct = {name: np.zeros(classes, dtype=np.int64) for name in readouts}
    for start in range(0, len(chosen), CHUNK):
        part = chosen[start : start + CHUNK]
        x = torch.from_numpy(np.ascontiguousarray(images[part]))
        for name, scores in session.learner.all_scores(x, readouts).items():
            answer = seen[scores.argmax(1).cpu().numpy()]
            right = labels[part][answer == labels[part]]
            correct[name] += np.bincount(right, minlength=classes)
    return [
        {"readout": name, "correct": counts.tolist(), "total": total.tolist()}
        for name, counts in correct.items()
    ]
