"""What was learned is taken back as if it had never come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ocil
from ocil.errors import OcilError
from ocil.learners.parts import OptimizerState
from ocil.moments import ClassMoments

RNG = np.random.default_rng(0)
Y = np.arange(400) % 4
X = (RNG.normal(size=(400, 6)) + 3 * np.eye(4, 6)[Y]).astype(np.float32)
WRONG = np.arange(310, 400)  # samples that are taken back, all after the first 300

EXACT = [
    {"method": "slda", "net": "identity"},
    {"method": "slda", "net": "random", "width": 30},
    {"method": "slda", "net": "identity", "memory": None},
    {"method": "ncm", "net": "identity", "memory": None},
    {"method": "ranpac", "net": "identity", "memory": None},
    {"method": "fecam", "net": "identity", "memory": None},
    {"method": "er", "anchor": "random", "anchor_width": 30, "width": 8, "readout": "anchor"},
]


def sums(model: ocil.Classifier) -> dict[str, torch.Tensor]:
    """Counts, means and covariance; they do not depend on the shift of the sums."""
    learner = model._fitted().session.learner
    for part in learner.parts.values():
        if isinstance(part, ClassMoments):
            if part.pending:
                part.enter()
            return {"counts": part.counts, "means": part.means, "covariance": part.covariance()}
    found = learner.parts.get("ncm") or learner.parts["fecam"]
    return {name: getattr(found, name) for name in found.saved}  # pyright: ignore


def need_equal(one: ocil.Classifier, other: ocil.Classifier) -> None:
    assert one.counts_ == other.counts_
    mine, theirs = sums(one), sums(other)
    assert list(mine) == list(theirs)
    for name, value in mine.items():
        assert torch.allclose(value, theirs[name], rtol=1e-5, atol=1e-5), name
    assert (one.predict(X) == other.predict(X)).mean() > 0.99  # the shrinkage may be another


@pytest.mark.parametrize("given", EXACT, ids=lambda g: "-".join(map(str, g.values())))
def test_samples_taken_back_leave_the_sums_of_a_model_that_never_saw_them(
    given: dict[str, Any],
) -> None:
    model = ocil.Classifier(**given).partial_fit(X, Y).flush()
    model.forget_samples(X[WRONG], Y[WRONG])
    never = ocil.Classifier(**given).partial_fit(X[:310], Y[:310]).flush()
    need_equal(model, never)
    parts = model._fitted().session.learner.parts
    held = [part for name, part in parts.items() if name in ("memory", "jury")]
    rows = np.concatenate([m.columns["x"][: len(m)] for m in held if len(m)] or [X[:310]])  # pyright: ignore
    assert {tuple(x) for x in rows} == {tuple(x) for x in X[:310]}


@pytest.mark.parametrize("given", EXACT, ids=lambda g: "-".join(map(str, g.values())))
def test_relabelled_samples_leave_the_sums_of_a_model_that_was_taught_right(
    given: dict[str, Any],
) -> None:
    wrong = Y.copy()
    wrong[WRONG] = (wrong[WRONG] + 1) % 4
    model = ocil.Classifier(**given).partial_fit(X, wrong).flush()
    model.relabel(X[WRONG], wrong[WRONG], Y[WRONG])
    need_equal(model, ocil.Classifier(**given).partial_fit(X, Y).flush())


def test_while_the_first_samples_are_held_the_encoder_is_made_anew() -> None:
    given = {"method": "slda", "net": "random", "width": 20}
    model = ocil.Classifier(**given).partial_fit(X[:60], Y[:60]).flush()
    model.forget_samples(X[20:35], Y[20:35])
    rest = np.r_[0:20, 35:60]
    never = ocil.Classifier(**given).partial_fit(X[rest], Y[rest]).flush()
    need_equal(model, never)
    for one in (model, never):
        one.partial_fit(X[60:], Y[60:])
    need_equal(model, never)


@pytest.mark.parametrize("given", [{"method": "otc", "width": 8},
                                   {"method": "otc", "net": "identity"}, EXACT[-1]])  # fmt: skip
def test_a_forgotten_class_is_gone_and_its_name_free(tmp_path: Path, given: dict[str, Any]) -> None:
    model = ocil.Classifier(**given).partial_fit(X, Y)
    learner = model._fitted().session.learner
    before = model.predict_proba(X[:8])
    model.forget(1)
    assert model.classes_.tolist() == [0, 2, 3]
    assert model.predict_proba(X[:8]).shape == (8, 3) != before.shape
    held = learner.memory.columns["y"][: len(learner.memory)]
    assert sorted(set(held.tolist())) == [0, 1, 2]  # ids move down
    want = {tuple(x) for x in X[Y != 1]}
    assert {tuple(x) for x in learner.memory.columns["x"][: len(held)].numpy()} <= want
    assert model.score(X[Y != 1], Y[Y != 1]) > 0.7
    model.save(tmp_path / "m.ocil")
    again = ocil.load(tmp_path / "m.ocil")
    for one in (model, again):
        one.partial_fit(X[Y == 1], Y[Y == 1])
        assert one.classes_.tolist() == [0, 2, 3, 1]
    assert model.state_sha256() == again.state_sha256()


def test_optimizer_and_average_lose_the_row_of_a_class() -> None:
    model = ocil.Classifier("er", width=8).partial_fit(X, Y)
    learner = model._fitted().session.learner
    wanted = {n: v.clone() for n, v in learner.state_dict().items() if n.endswith("head.weight")}
    optimizer = learner.parts["optimizer"]
    assert isinstance(optimizer, OptimizerState)
    moments = {n: v.clone() for n, v in optimizer.state_dict().items() if v.shape == (4, 8)}
    model.forget(2)
    for name, value in wanted.items():
        assert torch.equal(learner.state_dict()[name], value[[0, 1, 3]])
    assert len(moments) == 2
    assert len(wanted) == 2
    for name, value in moments.items():
        assert torch.equal(optimizer.state_dict()[name], value[[0, 1, 3]])


def test_pending_samples_are_corrected_where_they_wait() -> None:
    model = ocil.Classifier("slda", net="identity", batch=10).partial_fit(X[:14], Y[:14])
    before = model.counts_
    model.forget_samples(X[12:13], Y[12:13]).relabel(X[13:14], Y[13:14], [7])
    assert model.counts_ == before
    assert model.pending_ == 3
    model.flush()
    assert model.counts_ == {0: 3, 1: 3, 2: 3, 3: 3, 7: 1}
    assert model.partial_fit(X[:1], [8]).forget(8).pending_ == 0


def test_a_class_without_samples_and_a_classifier_without_classes() -> None:
    model = ocil.Classifier("slda", net="identity", memory=None).partial_fit(X[:20], Y[:20])
    model.relabel(X[1:20:4], Y[1:20:4], [0] * 5)
    assert model.classes_.tolist() == [0, 2, 3]
    model.forget(0).forget(3).forget_samples(X[2:20:4], Y[2:20:4])
    assert not model.__sklearn_is_fitted__()
    fresh = ocil.Classifier("slda", net="identity", memory=None)
    assert model.partial_fit(X, Y).state_sha256() == fresh.partial_fit(X, Y).state_sha256()


def test_what_cannot_be_taken_back_changes_nothing() -> None:
    model = ocil.Classifier("slda", net="identity")
    with pytest.raises(OcilError, match="nothing to take back"):
        model.forget(0)
    model.partial_fit(X[:20], Y[:20])
    before = model.state_sha256()
    for call, said in (
        (lambda: model.forget(9), "No class 9 was learned; there are 0, 1, 2, 3"),
        (lambda: model.forget("a"), "several kinds"),
        (lambda: model.forget_samples(X[:40], Y[:40]), "10 samples of class 0 .* 5 were learned"),
        (lambda: model.relabel(X[:2], [0, 9], [1, 1]), "No class 9"),
        (lambda: model.relabel(X[:2], [0, 1], [1, "b"]), "several kinds"),
    ):
        with pytest.raises(OcilError, match=said):
            call()
    assert model.state_sha256() == before
