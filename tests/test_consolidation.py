"""Training on the memory alone, stopped by the jury."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ocil
from ocil import consolidation
from ocil.errors import OcilError

DRAW = np.random.default_rng(1)
Y = np.arange(4).repeat(100)
X = (DRAW.normal(size=(400, 8)) + 2 * np.eye(8)[Y]).astype(np.float32)


def taught(method: str = "er", **given: object) -> ocil.Classifier:
    settings = {"memory": 200, "width": 16, "lr": 3e-3} | given
    return ocil.Classifier(method, **settings).partial_fit(X, Y).flush()  # pyright: ignore


def test_it_replays_the_memory_and_keeps_the_best_weights() -> None:
    model = taught()
    before = model.score(X, Y)
    gain = model.consolidate(updates=200)
    assert 0 < gain.updates <= 200
    assert gain.updates % consolidation.ROUND == 0
    assert gain.after < gain.before
    assert model.score(X, Y) > before


def test_the_same_number_of_steps_gives_the_same_bits_and_seconds_become_a_number() -> None:
    model, twin = taught(), taught()
    state = model.state_sha256()
    assert consolidation.updates_within(model._fitted().session, 0.05) >= 1
    assert model.state_sha256() == state
    assert model.consolidate(updates=60) == twin.consolidate(updates=60)
    assert model.state_sha256() == twin.state_sha256()
    assert twin.consolidate(seconds=0.05).updates <= consolidation.MOST


def test_where_nothing_gets_better_the_weights_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    model = taught()
    weights = {k: v.clone() for k, v in model._fitted().session.learner.model.state_dict().items()}
    monkeypatch.setattr(consolidation, "_loss", lambda learner: 1.0)
    assert model.consolidate().updates == 0
    now = model._fitted().session.learner.model.state_dict()
    assert all(v.equal(now[k]) for k, v in weights.items())


def test_without_a_jury_all_steps_are_taken() -> None:
    gain = taught(memory=50).consolidate(updates=30)
    assert gain.updates == 30
    assert math.isnan(gain.before)


def test_a_model_of_low_effort_gets_its_net_from_its_memory() -> None:
    model = taught("otc", effort="low", anchor_width=30)
    learner = model._fitted().session.learner
    assert "similarity" not in learner.readouts()
    model.consolidate(updates=40)
    assert learner.trained  # pyright: ignore
    assert "similarity" in learner.readouts()
    assert model.score(X, Y) > 0.7


def test_what_has_nothing_to_train_says_so() -> None:
    with pytest.raises(OcilError, match="slda has no net with a head"):
        ocil.Classifier("slda", net="identity").fit(X, Y).consolidate()
    with pytest.raises(OcilError, match="nothing to consolidate"):
        ocil.Classifier("er", memory=None).fit(X, Y).consolidate()
