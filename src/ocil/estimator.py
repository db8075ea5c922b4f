"""The conventions of scikit-learn and river, without importing either.

`Classifier` inherits parameters (get_params, set_params, clone), tags, pickling and the one-sample
names of river from here; scikit-learn is only loaded when it asks for the tags itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from ocil.errors import OcilError
from ocil.samples import BadInput


class Estimator:
    """Parameters are those of the constructor's signature plus the settings given to it."""

    _given: dict[str, Any]
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
            if "__" in name or not name.isidentifier():
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

    # ---------------------------------------------------------------- river

    def learn_one(self, x: Any, y: int | str) -> None:
        """One sample: an image or vector, or river's dictionary of features by name."""
        self.partial_fit(one(x), [y])

    def predict_one(self, x: Any) -> int | str | None:
        """The label of one sample; None while nothing is learned, as in river."""
        if not self.__sklearn_is_fitted__():
            return None
        return self.predict(one(x))[0].item()

    def predict_proba_one(self, x: Any) -> dict[int | str, float]:
        """Probabilities by label; empty while nothing is learned."""
        if not self.__sklearn_is_fitted__():
            return {}
        shares = self.predict_proba(one(x))[0].tolist()
        return dict(zip(self.classes_.tolist(), shares, strict=True))

    @property
    def classes_(self) -> np.ndarray:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        raise NotImplementedError


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
