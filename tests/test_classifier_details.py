"""What a classifier that has learned nothing says, and how many items it reads at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from ocil import Classifier
from ocil.errors import OcilError


def test_there_is_nothing_to_save_before_anything_was_learned(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="nothing to save"):
        Classifier("er").save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("items", "room", "parts"),
    [
        (240, 1 << 24, [120, 120]),
        (241, 1 << 24, [120, 120, 4]),
        (25, 160, [8, 8, 8, 4]),
        (2, 1, [4]),
    ],
)
def test_many_items_are_read_in_parts_for_which_there_is_room(
    monkeypatch: pytest.MonkeyPatch, items: int, room: int, parts: list[int]
) -> None:
    monkeypatch.setattr("ocil.answers.MAX_SCORES", room)  # eight for an item and a class
    x = np.random.default_rng(0).normal(size=(items, 3)).astype(np.float32)
    model = Classifier("er", batch=2).partial_fit(x[:2], [0, 1])
    learner = model._fitted().session.learner
    seen: list[int] = []
    scores = learner.scores
    monkeypatch.setattr(learner, "scores", lambda x, *of: (seen.append(len(x)), scores(x, *of))[1])
    assert model.predict(x).shape == (items,)
    assert seen == parts


@pytest.mark.parametrize(
    ("error", "told"),
    [(RuntimeError("no draw from NaN"), "lower lr"), (OcilError("Its own reason."), "own reason")],
)
def test_ruined_weights_are_named_as_the_cause_of_an_error_that_they_led_to(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    model = Classifier("er", batch=8, net="mlp").partial_fit(x, [0, 1] * 4)
    session = model._fitted().session

    def learn(*_: object) -> None:
        session.learner.model.head.weight.data.fill_(np.nan)
        raise error

    monkeypatch.setattr(session, "learn", learn)
    with pytest.raises(OcilError, match=told):
        model.partial_fit(x, [0, 1] * 4)
    assert np.isfinite(model.scores(x)).all()  # back to before
