"""Vectors that leave the range of those that were learned, and a new start from the memory."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine

from ocil import Classifier, OcilError, load

SMALL = {"method": "er", "memory": 60, "replay": 8, "width": 8}


def table(seed: int = 0, classes: int = 2, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return draw.normal(size=(n, 3)) + 3 * y[:, None], y


def test_a_known_class_in_other_units_is_told_once() -> None:
    x, y = table()
    model = Classifier(**SMALL).partial_fit(x, y)
    moved = x * [1, 1000, 1]
    with pytest.warns(UserWarning, match=r"Column number 1 \(from 0\) of the latest .* rescale"):
        model.partial_fit(moved, y)
    model.partial_fit(moved, y)  # a second warning would be an error


def test_columns_of_a_data_frame_are_named() -> None:
    class Frame:
        columns = ("length", "width", "weight")

        def __init__(self, values: np.ndarray) -> None:
            self.values = values

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return self.values

    x, y = table()
    model = Classifier(**SMALL).partial_fit(Frame(x), y)
    with pytest.warns(UserWarning, match="Column 'length' and 2 others"):
        model.partial_fit(Frame(x + 500), y)


@pytest.mark.parametrize("case", ["new class", "few", "outlier", "off"])
def test_what_is_no_change_of_units(case: str) -> None:
    x, y = table()
    model = Classifier(**SMALL, scale=case != "off")
    model.partial_fit(x[:30] if case == "few" else x, y[:30] if case == "few" else y)
    more = x * 1000
    if case == "outlier":
        more = x.copy()
        more[::10] *= 1000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(more[:10], y[:10] + 5 if case == "new class" else y[:10])


def test_a_new_start_from_the_memory() -> None:
    x, y = table()
    model = Classifier(**SMALL).partial_fit(x, y).partial_fit(x[:3], y[:3]).flush()
    memory = model._fitted().session.learner.memory
    held = len(memory)
    means = memory.columns["x"][:held].mean(0)
    model.rescale()
    assert sum(model.counts_.values()) == held == 60 and model.pending_ == 0
    scale = model._fitted().session.learner.scale
    assert scale is not None and scale.seen == 60
    np.testing.assert_allclose(scale.mean, means, atol=1e-5)
    again = Classifier(**SMALL).partial_fit(x, y).partial_fit(x[:3], y[:3]).rescale()
    assert again.state_sha256() == model.state_sha256()


def test_after_a_change_of_units_it_learns_again() -> None:
    x, y = table(n=600)
    model = Classifier("er", memory=100, replay=16, width=32, lr=1e-2).partial_fit(x[:300], y[:300])
    moved = x * 1000
    with pytest.warns(UserWarning, match="rescale"):
        model.partial_fit(moved[300:], y[300:])
    before = model._fitted().session.learner.scale.gain  # pyright: ignore
    model.rescale().partial_fit(moved[300:], y[300:])
    assert (model._fitted().session.learner.scale.gain < before / 100).all()  # pyright: ignore
    assert model.score(moved[:300], y[:300]) > 0.9


def test_no_memory_to_start_from() -> None:
    x, y = table()
    with pytest.raises(OcilError, match="no samples to start anew from"):
        Classifier("slda", memory=None, net="identity").partial_fit(x, y).rescale()
    with pytest.raises(OcilError, match="not fitted"):
        Classifier().rescale()


def test_a_table_as_it_is(tmp_path: Path) -> None:
    """wine: proline in the hundreds beside hue below two; every third wine is asked for."""
    x, y = load_wine(return_X_y=True)
    order = np.random.default_rng(100).permutation(len(y))
    x, y = x[order], y[order]
    learn, ask = np.arange(len(y)) % 3 > 0, np.arange(len(y)) % 3 == 0
    found = {}
    for scale in (True, False):
        model = Classifier("er", scale=scale).partial_fit(x[learn], y[learn]).flush()
        found[scale] = model.score(x[ask], y[ask])
        model.save(tmp_path / "wine.ocil")
        again = load(tmp_path / "wine.ocil")
        assert again.partial_fit(x, y).state_sha256() == model.partial_fit(x, y).state_sha256()
    assert found[True] > 0.9 and found[False] < 0.7
