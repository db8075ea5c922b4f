"""river's evaluation and its own checks of estimators."""

from typing import Any

import pytest

import ocil

pytest.importorskip("river")
from river import checks, compose, evaluate, metrics, preprocessing
from river.datasets import synth

from ocil.river import Classifier

SMALL: dict[str, Any] = {"memory": 20, "replay": 8, "width": 8}
# The same classifier throughout: with trained weights, and by exact sums alone.
MODELS = [Classifier("er", **SMALL), Classifier("slda", memory=None, net="identity")]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.method)
def test_checks_of_river(model: Classifier) -> None:
    """None is left out: `check_estimator` passes over those in `_unit_test_skips`."""
    assert not model._unit_test_skips()
    checks.check_estimator(model)


def test_evaluation_of_river() -> None:
    model = preprocessing.StandardScaler() | Classifier("slda", memory=None, net="identity")
    score = evaluate.progressive_val_score(
        synth.Waveform(seed=1).take(400), model, metrics.Accuracy()
    )
    assert score.get() > 0.7


def test_every_label_is_known_at_once() -> None:
    model = Classifier("slda", memory=None, net="identity")
    assert model.predict_one({"a": 1.0}) is None and model.predict_proba_one({"a": 1.0}) == {}
    for i, label in enumerate("xyz"):
        model.learn_one({"a": float(i), "b": -float(i)}, label)
        assert set(model.predict_proba_one({"a": 1.0})) == set("xyz"[: i + 1])


def test_columns_are_those_of_the_first_sample() -> None:
    model, rows = Classifier("er", **SMALL), [{"b": 1.0, "a": 2.0}, {"a": 5.0, "c": 9.0}]
    for row in rows * 5:
        model.learn_one(row, len(row))
    own = ocil.Classifier("er", **SMALL)
    own.partial_fit([[2.0, 1.0]], [2]).flush()
    own.partial_fit([[5.0, 0.0], [2.0, 1.0]] * 4 + [[5.0, 0.0]], [2] * 9)
    assert model.model.state_sha256() == own.state_sha256()


@pytest.mark.parametrize("row", [{}, {"a": "text"}, {"a": float("nan")}])
def test_a_bad_first_sample(row: dict[str, Any]) -> None:
    model = Classifier("slda", memory=None, net="identity")
    with pytest.raises(ocil.OcilError):
        model.learn_one(row, 1)
    assert model.columns is None
    model.learn_one({"b": 1.0}, 1)
    assert model.columns == ["b"] and model.predict_one({"b": 1.0}) == 1


def test_in_a_pipeline_with_chosen_features() -> None:
    model = compose.Select("a") | Classifier("slda", memory=None, net="identity")
    for i in range(20):
        model.learn_one({"a": float(i % 2), "b": float(i)}, i % 2)
    assert model.predict_one({"a": 1.0, "b": 50.0}) == 1
