"""What `--latents` keeps at the end of a run: test features and the centroids of their classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ocil.learners.readouts import Centroids
from ocil.run.latentfile import Latents
from ocil.session import Session
from ocil.stream import probe_indices

POINTS = 2_000  # test features, the same number of each class
BUDGET = 16 << 20  # bytes of features, and as many of centroids: wide ones are fewer


def collect(
    session: Session, images: np.ndarray, labels: np.ndarray, note: dict[str, Any]
) -> Latents:
    """Features of a fixed, class-balanced choice of test images (n, ...) with labels (n,).

    The choice depends on the labels alone, so runs that share a test set show the same images.
    Nothing of the session changes.
    """

    def features_of(rows: np.ndarray) -> torch.Tensor:
        return session.learner.latent_points(torch.from_numpy(np.ascontiguousarray(images[rows])))

    seen = np.asarray(session.labels.classes, dtype=np.int64)
    known = np.flatnonzero(np.isin(labels, seen))
    most = BUDGET // (4 * features_of(known[:1]).shape[1])
    chosen = known[probe_indices(labels[known], min(POINTS, max(1, most)))]
    features = features_of(chosen)
    none = Centroids(features[:0], torch.zeros(0, dtype=torch.int64), features[:0, 0])
    found = session.learner.centroids() or none
    classes = seen[found.classes.cpu().numpy()]
    rows = np.flatnonzero(np.isin(classes, labels[chosen]))[:most]
    return Latents(
        note,
        _floats(features),
        labels[chosen].astype(np.int32),
        _floats(found.points)[rows],
        classes[rows].astype(np.int32),
        _floats(found.weights)[rows],
        None if found.variances is None else _floats(found.variances)[rows],
    )


def _floats(values: torch.Tensor) -> np.ndarray:
    return values.detach().float().cpu().numpy()
