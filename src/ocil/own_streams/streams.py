"""The streams: data that a person could have, class by class and shuffled.

By their part in the study (`ocil.report.own_streams.PARTS`): defaults may be chosen on held-out
parts of some; test figures of others were seen in trials before; the rest confirm: they are run
once, after the defaults are fixed, and have no held-out part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ocil.data import load
from ocil.data.dataset import every_fifth
from ocil.data.find import roots
from ocil.errors import OcilError, refusing
from ocil.settings import Settings
from ocil.stream import Stream

Order = Literal["classes", "shuffled"]
MEMORY = 500


class Arrays(NamedTuple):
    x: np.ndarray
    y: np.ndarray  # class ids
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Source:
    """Where a stream comes from; `limit`: samples of a class that are learned."""

    part: Literal["chosen on", "seen before", "confirms"]
    read: Callable[[Path | None], Arrays]
    limit: int | None = None


class Samples(NamedTuple):
    """What is learned, in its order, and what is asked."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    memory: int


def _named(name: str, data_dir: Path | None) -> Arrays:
    data = load(name, data_dir)
    return Arrays(data.train_images, data.train_labels, data.test_images, data.test_labels)


def _clinc(data_dir: Path | None) -> Arrays:
    """CLINC150: sentences of 150 intents as vectors of a sentence model."""
    places = [root / "clinc150" / "clinc150.npz" for root in roots(data_dir)]
    place = next((place for place in places if place.is_file()), None)
    if place is None:
        raise OcilError(f"There is no clinc150; put clinc150.npz into {places[0].parent}.")
    with refusing(f"{place} cannot be read"), np.load(place, allow_pickle=False) as found:
        x, x_test = (found[name].astype(np.float32) for name in ("x_train", "x_test"))
        names, y = np.unique(found["y_train"], return_inverse=True)
        return Arrays(x, y, x_test, np.searchsorted(names, found["y_test"]))


def _table(x: Any, y: Any) -> Arrays:
    """A table without a test part: every fifth row of each class is one."""
    x, y = np.asarray(x, dtype=np.float32), np.unique(y, return_inverse=True)[1]
    test = every_fifth(y)
    return Arrays(x[~test], y[~test], x[test], y[test])


def _sklearn(name: str, _: Path | None) -> Arrays:
    from sklearn import datasets

    return _table(*getattr(datasets, f"load_{name}")(return_X_y=True))


def _river(name: str, _: Path | None) -> Arrays:
    try:
        from river import datasets
    except ImportError:
        raise OcilError(f"Stream {name} is one of river's; `pip install ocil[river]`.") from None
    rows = list(getattr(datasets, name)())
    return _table([list(row.values()) for row, _ in rows], [label for _, label in rows])


STREAMS = {
    "digits": Source("chosen on", partial(_named, "digits")),
    "mnist": Source("chosen on", partial(_named, "mnist"), limit=1000),
    "cifar10": Source("chosen on", partial(_named, "cifar10"), limit=500),
    "clinc150": Source("seen before", _clinc),
    "wine": Source("seen before", partial(_sklearn, "wine")),
    "breast-cancer": Source("seen before", partial(_sklearn, "breast_cancer")),
    "tiny-imagenet-20": Source("confirms", partial(_named, "tiny-imagenet-20"), limit=100),
    "image-segments": Source("confirms", partial(_river, "ImageSegments")),
    "phishing": Source("confirms", partial(_river, "Phishing")),
    "bananas": Source("confirms", partial(_river, "Bananas")),
}


def samples(source: Source, arrays: Arrays, order: Order, seed: int, validate: bool) -> Samples:
    """Arrays in the order of a seed; `validate`: asked is a tenth of the training part.

    The memory is 500, or half of a stream that is shorter than 1 000: of a stream that the memory
    holds whole, nothing can be forgotten.
    """
    settings = Settings(
        order="split" if order == "classes" else "joint",
        classes_per_task=1,
        batch=len(arrays.y),
        seed=seed,
        validate=validate,
        limit_per_class=source.limit,
    )
    stream = Stream(arrays.y, settings)
    rows = np.concatenate([batch.indices for batch in stream.batches()])
    test = (arrays.x[stream.held_out], arrays.y[stream.held_out])
    test = test if validate else (arrays.x_test, arrays.y_test)
    return Samples(arrays.x[rows], arrays.y[rows], *test, min(MEMORY, len(rows) // 2))
