"""What a person hands over, checked and brought into the form learners want.

Items become one array (n, d) or (n, C, H, W), uint8 or float32; labels a list of int or str. The
first call fixes shape, number type and kind of label. Nothing here changes anything.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from ocil.errors import OcilError
from ocil.labels import Label

log = logging.getLogger("ocil")
MAX_VALUE = 1e6  # of a feature: squares and products of more overflow or lose digits in float32
MAX_WEIGHT = 1000  # of a sample
MAX_LABEL = 1000  # characters of a label
CHANNELS = (1, 3, 4)  # numbers of colours that are recognised without being told
Channels = Literal["auto", "first", "last"]


class BadInput(OcilError, ValueError):
    """Data that cannot be learned or predicted; nothing was changed by the call."""


class BadType(BadInput, TypeError):
    """Data that are no numbers, which scikit-learn calls a TypeError."""


class Form(NamedTuple):
    """What all items of a classifier have in common."""

    shape: tuple[int, ...]  # (d,) or (C, H, W)
    dtype: str  # "uint8" or "float32"

    @classmethod
    def of(cls, x: Any) -> Form:
        """That of items (n, ...), an array or a tensor."""
        return cls(tuple(x.shape[1:]), str(x.dtype).removeprefix("torch."))

    def __str__(self) -> str:
        if len(self.shape) == 1:
            return f"vectors of {self.shape[0]} {self.dtype} features"
        channels, height, width = self.shape
        return f"{self.dtype} images of {height}x{width} pixels and {channels} channels"


def items(X: Any, channels: Channels, form: Form | None = None) -> np.ndarray:
    """X as (n, d) or (n, C, H, W), uint8 or float32; what does not fit `form` is refused."""
    x = _ordered(_array(X), channels)
    found = Form.of(x)
    if form and len(form.shape) == len(found.shape) == 1 and form.shape != found.shape:
        raise BadInput(
            f"X has {found.shape[0]} features, but Classifier is expecting {form.shape[0]} "
            "features as input; give the ones it learned from."
        )
    if form and found != form:
        raise BadInput(f"X holds {found}, but the classifier learned {form}; give those.")
    return x


def _array(X: Any) -> np.ndarray:
    """Any array as one of uint8, another integer or float64/32, with at least one item."""
    tensor = hasattr(X, "detach")  # of torch, which is not loaded for arrays
    if hasattr(X, "toarray") or (tensor and str(X.layout) != "torch.strided"):
        raise BadInput("X is sparse data; give a dense array, for instance with X.toarray().")
    if tensor:
        X = X.detach().cpu()
        X = X.float() if str(X.dtype) == "torch.bfloat16" else X
    try:
        array = np.asarray(X)
        if array.dtype == object:
            array = array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        problem = f"{type(error).__name__}: {str(error)[:120]}"
        kind = BadType if isinstance(error, TypeError) else BadInput
        raise kind(
            f"X is no array of numbers ({problem}); each argument must be a string or a number "
            "turned into numbers first."
        ) from error
    if array.dtype.kind == "c":
        raise BadInput("Complex data not supported: give real numbers.")
    if array.dtype.kind not in "buif":
        raise BadInput(f"X holds {array.dtype}; give numbers.")
    if array.ndim not in (2, 3, 4):
        raise BadInput(
            f"X has shape {array.shape}; give vectors (n, d) or images (n, H, W), (n, H, W, C) or "
            "(n, C, H, W). Reshape your data, for one item with X[None]."
        )
    if not len(array):
        raise BadInput("X is empty: 0 samples; give at least one.")
    if not array.size:
        raise BadInput(
            f"X has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required."
        )
    return array


def _ordered(array: np.ndarray, channels: Channels) -> np.ndarray:
    """Channels before rows and columns, uint8 or float32, in memory of its own."""
    if array.ndim > 2 and array.dtype.kind in "bui" and array.dtype != np.uint8:
        raise BadInput(f"X holds images of {array.dtype}; give uint8 (0..255) or floats (0..1).")
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and _last(array.shape, channels):
        array = np.moveaxis(array, 3, 1)
    if array.dtype != np.uint8:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            raise BadInput("X holds NaN or infinite values (inf); take such items out.")
        if (largest := float(np.abs(array).max())) > MAX_VALUE:
            raise BadInput(
                f"X holds the value {largest:g}, at most {MAX_VALUE:g} is taken; scale your data."
            )
    return np.array(array, order="C")  # a copy: callers reuse their arrays


def check_channels(channels: object) -> None:
    if channels not in ("auto", "first", "last"):
        raise OcilError(f"channels is {channels!r}; choose 'auto', 'first' or 'last'.")


def _last(shape: tuple[int, ...], channels: Channels) -> bool:
    """Whether the channels of (n, ?, ?, ?) come last."""
    check_channels(channels)
    if channels != "auto":
        return channels == "last"
    first, last = shape[1] in CHANNELS, shape[3] in CHANNELS
    if first == last:
        raise BadInput(
            f"X has shape {shape}: it is not clear where its channels are; give the classifier "
            "channels='first' or channels='last'."
        )
    return last


def labels(y: Any, count: int, known: Sequence[Label]) -> list[Label]:
    """y as plain numbers or text, one for each item, all of the kind of the `known` ones."""
    if y is None:
        raise BadInput("requires y to be passed, but the target y is None; give a label an item.")
    if hasattr(y, "toarray"):
        raise BadInput("y is sparse data; give one label for each item.")
    values = y.detach().cpu().numpy() if hasattr(y, "detach") else y
    values = np.asarray(values) if hasattr(values, "__array__") else values
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == 1:
        values = _column(values)
    values = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise BadInput(f"y is {type(y).__name__}; give a list or array with a label an item.")
    if len(values) != count:
        raise BadInput(f"X has {count} items but y has {len(values)} labels; give one each.")
    plain = [_label(value) for value in values]
    kinds = {type(value).__name__ for value in [*plain, *known[:1]]}
    if len(kinds) > 1:
        words = " and ".join(sorted(kinds))
        raise BadInput(f"y mixes labels of several kinds ({words}); give one kind in all calls.")
    return plain


def repeated(sample_weight: Any, count: int) -> np.ndarray | None:
    """Places (m,) of samples, each as often as its weight says; None where all count once.

    >>> repeated([1, 0, 2], 3).tolist()
    [0, 2, 2]
    """
    if sample_weight is None:
        return None
    try:
        weights = np.asarray(sample_weight, np.float64)
    except (TypeError, ValueError) as error:
        raise BadInput("sample_weight holds no numbers; give one for each sample.") from error
    if weights.ndim == 0:
        weights = np.full(count, weights)
    if weights.shape != (count,):
        raise BadInput(
            f"sample_weight.shape == {weights.shape}, expected ({count},): one weight a sample."
        )
    if not ((weights >= 0) & (weights <= MAX_WEIGHT) & (weights == np.round(weights))).all():
        raise BadInput(
            f"sample_weight holds other than whole numbers from 0 to {MAX_WEIGHT}; a weight says "
            "how often a sample is learned, so scale and round them."
        )
    if not weights.any():
        raise BadInput("sample_weight is zero for all samples; give at least one a weight.")
    return np.repeat(np.arange(count), weights.astype(np.int64))


def _column(y: np.ndarray) -> np.ndarray:
    """The labels of a column (n, 1), which scikit-learn takes with a warning."""
    from sklearn.exceptions import DataConversionWarning

    said = "A column-vector y was passed when a 1d array was expected; its column was taken."
    warnings.warn(said, DataConversionWarning, stacklevel=5)
    return y[:, 0]


def _label(value: Any) -> Label:
    value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
    if type(value) is np.str_:
        value = str(value)
    if type(value) is str:
        if len(value) > MAX_LABEL or "\0" in value:
            raise BadInput(
                f"A label has {len(value)} characters or a NUL; give {MAX_LABEL} at most."
            )
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            raise BadInput("A label is no valid text: it holds half a character; mend it.")
        return value
    if type(value) is bool or (type(value) is int and -(2**63) <= value < 2**63):
        return value
    if type(value) is float and value.is_integer() and abs(value) <= 2**53:
        return value
    raise BadInput(f"Unknown label type: {str(value)[:40]!r}; labels are whole numbers or text.")
