"""The conventions of scikit-learn and river, without importing either.

`Classifier` inherits parameters (get_params, set_params, clone), tags, pickling and the one-sample
names of river from here; scikit-learn is only loaded when it asks for the tags itself.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ocil import samples
from ocil.errors import OcilError
from ocil.labels import Label
from ocil.modelfile import Learned
from ocil.samples import BadInput
from ocil.session import State


class Estimator:
    """Parameters are those of the constructor's signature plus the settings given to it."""

    _given: dict[str, Any]
    _learned: Learned | None
    _estimator_type = "classifier"

    def partial_fit(self, X: Any, y: Any) -> Any:
        raise NotImplementedError

    def predict(self, X: Any) -> np.ndarray:
        raise NotImplementedError

    def predict_proba(self, X: Any) -> np.ndarray:
        raise NotImplementedError

    @classmethod
    def _named(cls) -> list[str]:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        parameters = inspect.signature(cls.__init__).parameters.values()
        return [p.name for p in parameters if p.kind in kinds and p.name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments; `deep` is there for scikit-learn, nothing lies deeper."""
        return {name: getattr(self, name) for name in self._named()} | self._given

    def set_params(self, **params: Any) -> Any:
        """Change arguments; they count from the next start (`fit`, or the first `partial_fit`)."""
        for name, value in params.items():
            if "__" in name or not name.replace(".", "").isidentifier():
                raise BadInput(f"Invalid parameter {name!r} for Classifier: it has no parts.")
            if name in self._named():
                setattr(self, name, value)
            else:
                self._given[name] = value
        return self

    def __repr__(self) -> str:
        usual = inspect.signature(type(self).__init__).parameters
        shown = [
            f"{name}={value!r}" if isinstance(value, str | int | float | bool) else f"{name}=..."
            for name, value in self.get_params().items()
            if name not in usual or value is not usual[name].default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(three_d_array=True),
            non_deterministic=False,
        )

    # ---------------------------------------------------------------- what was learned

    def _fitted(self) -> Learned:
        if self._learned is None or not self._learned.session.labels.classes:
            raise not_fitted(
                f"This Classifier is not fitted yet ({self.pending_} samples are pending); call "
                "partial_fit, or flush for pending ones."
            )
        return self._learned

    def __sklearn_is_fitted__(self) -> bool:
        learned = self._learned
        return learned is not None and bool(learned.session.labels.classes or learned.classes)

    @property
    def classes_(self) -> np.ndarray:
        """Labels so far: after `fit` sorted, later ones in order of arrival; those of pending
        samples as soon as the answers count them."""
        return np.array(self._fitted().classes)

    @property
    def counts_(self) -> dict[Label, int]:
        """Samples learned of each class."""
        learned = self._fitted()
        return {label: learned.counts[label] for label in learned.session.labels.classes}

    @property
    def n_features_in_(self) -> int:
        """Numbers in one item."""
        return math.prod(self._fitted().form.shape)

    @property
    def pending_(self) -> int:
        """Samples that wait for a whole batch, or for flush()."""
        return len(self._learned.pending[1]) if self._learned and self._learned.pending else 0

    def score(self, X: Any, y: Any) -> float:
        """Share of correct answers."""
        answers = self.predict(X).tolist()
        wanted = samples.labels(y, len(answers), self._fitted().classes)
        return sum(a == b for a, b in zip(answers, wanted, strict=True)) / len(wanted)

    def state_sha256(self) -> str:
        """Equal for equal states; that of an `ocil run` that learned the same batches."""
        return (self._learned.state() if self._learned else State({}, {})).sha256()

    # ---------------------------------------------------------------- river

    def learn_one(self, x: Any, y: Label) -> None:
        """One sample: an image or vector, or river's dictionary of features by name."""
        self.partial_fit(one(x), [y])

    def predict_one(self, x: Any) -> Label | None:
        """The label of one sample; None while nothing is learned, as in river."""
        if not self.__sklearn_is_fitted__():
            return None
        return self.predict(one(x))[0].item()

    def predict_proba_one(self, x: Any) -> dict[Label, float]:
        """Probabilities by label; empty while nothing is learned."""
        if not self.__sklearn_is_fitted__():
            return {}
        shares = self.predict_proba(one(x))[0].tolist()
        return dict(zip(self.classes_.tolist(), shares, strict=True))


class Named:
    """One row of named features, as a data frame would give it."""

    def __init__(self, values: Mapping[str, float]) -> None:
        if not values or not all(isinstance(name, str) for name in values):
            raise BadInput("A sample is a dictionary without names; give features by name.")
        self.columns = sorted(values)
        self.values = [[values[name] for name in self.columns]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)


def one(x: Any) -> Any:
    """A batch of one."""
    if isinstance(x, Mapping):
        return Named(x)
    return x[None] if hasattr(x, "ndim") else np.asarray(x)[None]


def feature_names(X: Any) -> list[str] | None:
    """Names of the columns of a data frame, if they are text."""
    columns = getattr(X, "columns", None)
    if columns is None or callable(columns):
        return None
    names = list(columns)
    return [str(name) for name in names] if all(isinstance(n, str) for n in names) else None


def not_fitted(message: str) -> OcilError:
    """Our error that is also scikit-learn's NotFittedError."""
    from sklearn.exceptions import NotFittedError

    kind = type("NotFitted", (BadInput, NotFittedError), {})
    return kind(message)
