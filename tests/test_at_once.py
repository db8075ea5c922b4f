"""Samples that wait for a whole batch count in the answers at once."""

from __future__ import annotations

import numpy as np
import pytest

import ocil

DRAW = np.random.default_rng(0)
Y = np.arange(4).repeat(30)
X = (DRAW.normal(size=(120, 6)) + 5 * np.eye(6)[Y]).astype(np.float32)
SMALL = {"anchor_width": 40, "width": 8, "memory": 50}


def test_after_the_first_sample_of_a_second_class_it_answers() -> None:
    model = ocil.Classifier("otc", **SMALL).partial_fit(X[:1], Y[:1])  # pyright: ignore
    assert model.predict(X[:2]).tolist() == [0, 0]
    model.partial_fit(X[30:31], Y[30:31])
    assert (model.pending_, model.classes_.tolist()) == (2, [0, 1])
    assert model.predict(X[:60]).tolist() == Y[:60].tolist()


@pytest.mark.parametrize("effort", ["low", "auto"])
def test_a_class_that_waits_is_known_and_nothing_is_changed_by_asking(effort: str) -> None:
    model = ocil.Classifier("otc", effort=effort, **SMALL).partial_fit(X[:60], Y[:60])  # pyright: ignore
    twin = ocil.Classifier("otc", effort=effort, **SMALL).partial_fit(X[:60], Y[:60])  # pyright: ignore
    for part in (slice(60, 63), slice(90, 91), slice(63, 64)):
        model.partial_fit(X[part], Y[part])
        twin.partial_fit(X[part], Y[part])
        twin.predict_proba(X)
        twin.novelty(X)
    assert model.pending_ == 5
    assert model.predict(X[64:90]).tolist() == [2] * 26
    assert model.predict_proba(X).shape == (120, 4)
    assert model.partial_fit(X, Y).state_sha256() == twin.partial_fit(X, Y).state_sha256()


def test_methods_that_train_nothing_let_no_sample_wait() -> None:
    model = ocil.Classifier("slda", net="identity").partial_fit(X[:7], Y[:7])
    assert model.pending_ == 0
