"""Who learns a stream: `Classifier()`, methods without training, and scikit-learn's.

"fixed" are the features of the anchor's encoder (`patches` for images, `random` for vectors), "raw"
the samples as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ocil.classifier import Classifier
from ocil.nets import fixed_for
from ocil.own_streams.streams import MEMORY, Samples
from ocil.report.own_streams import OFFLINE, OURS

METHODS = ("ncm", "slda", "ranpac", "fecam", "knn", "logistic")


class Model(Protocol):
    def partial_fit(self, X: Any, y: Any) -> Any: ...
    def predict_proba(self, X: Any) -> np.ndarray: ...
    @property
    def classes_(self) -> np.ndarray: ...


Make = Callable[[Samples, int], Model]  # of a stream and a seed


def _ours(found: Samples, seed: int) -> Model:
    """At its defaults; only a stream shorter than 1 000 gets a smaller memory."""
    short = found.memory < MEMORY
    return Classifier(memory=found.memory, seed=seed) if short else Classifier(seed=seed)


def _method(method: str, raw: bool, whole: bool = False) -> Make:
    """A method on fixed or raw features; `whole`: its memory holds the whole stream."""

    def make(found: Samples, seed: int) -> Model:
        size = len(found.y) if whole else found.memory
        memory = size if method in ("knn", "logistic") else None
        shape = found.x.shape[1:]
        return Classifier(method, memory, "identity" if raw else fixed_for(shape), seed=seed)

    return make


class NaiveBayes:
    """scikit-learn's GaussianNB, which has to be told all classes in advance."""

    def __init__(self, classes: np.ndarray) -> None:
        from sklearn.naive_bayes import GaussianNB

        self.model, self.classes_ = GaussianNB(), classes

    def partial_fit(self, X: np.ndarray, y: np.ndarray) -> None:
        self.model.partial_fit(X.reshape(len(X), -1), y, self.classes_)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(X.reshape(len(X), -1))

    @property
    def nbytes(self) -> int:
        return self.model.theta_.nbytes + self.model.var_.nbytes


RIVALS: dict[str, Make] = {
    OURS: _ours,
    **{f"{name}-{space}": _method(name, space == "raw")
       for name in METHODS for space in ("fixed", "raw")},
    "naive-bayes-raw": lambda found, _: NaiveBayes(np.unique(found.y)),
    OFFLINE: _method("logistic", raw=True, whole=True),
}  # fmt: skip
