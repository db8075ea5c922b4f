"""The classifier as river's own kind of model (`pip install ocil[river]`).

river hands over one sample at a time, a dictionary of features by name, and evaluates by asking
before teaching; `ocil.Classifier` wants vectors. The names in the first sample that is learned
become the columns of the vectors. A feature that is missing later counts as 0, and one that was not
in the first sample is not used: a network has as many inputs as it began with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ocil.classifier import Classifier as Own
from ocil.errors import OcilError
from ocil.labels import Label
from ocil.samples import BadInput

try:
    from river import base
except ImportError as error:
    raise OcilError(
        "ocil.river needs the package river; install it: pip install ocil[river]"
    ) from error


class Classifier(base.Classifier):
    """`ocil.Classifier` for river: pipelines, `progressive_val_score`, `clone`.

    >>> from river import datasets, evaluate, metrics
    >>> model = Classifier("slda", memory=None, net="identity")
    >>> evaluate.progressive_val_score(datasets.Phishing().take(500), model, metrics.Accuracy())
    Accuracy: 88.38%

    Parameters are those of `ocil.Classifier`. Samples are learned in batches of `batch` (10), and
    at once where a new label would have to wait otherwise: every label learned can be an answer.
    """

    def __init__(
        self,
        method: str = "otc",
        memory: int | None = 500,
        net: str = "auto",
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.method, self.memory, self.net, self.seed = method, memory, net, seed
        self.settings = settings
        self.model = Own(method, memory, net, seed=seed, **settings)
        self.columns: list[Any] | None = None

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Mapping[Any, Any], y: Label) -> None:
        """Learn one sample; features may come in any order."""
        if not x and self.columns is None:
            raise BadInput("The first sample has no features; give some by name.")
        columns = self.columns or sorted(x, key=str)
        model = self.model.partial_fit(_row(x, columns), [y])
        self.columns = columns
        if model._learned and y not in model._learned.classes:
            model.flush()

    def predict_proba_one(self, x: Mapping[Any, Any], **_: Any) -> dict[Any, float]:
        """Probabilities by label; empty before anything was learned."""
        if not self.model.__sklearn_is_fitted__():
            return {}
        shares = self.model.predict_proba(_row(x, self.columns or ()))[0].tolist()
        return dict(zip(self.model.classes_.tolist(), shares, strict=True))


def _row(x: Mapping[Any, Any], columns: Sequence[Any]) -> list[list[Any]]:
    return [[x.get(name, 0.0) for name in columns]]
