"""Merged models: sums of all streams, in whatever order; what does not merge is said."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import ocil as package
from ocil.classifier import Classifier, load
from ocil.errors import OcilError
from ocil.learners.replay import ReplayLearner
from ocil.merging import statistics
from ocil.nets import Fitted
from ocil.samples import BadInput

FIXED = {
    "slda": {"net": "patches"},
    "ncm": {"net": "patches"},
    "ranpac": {"net": "patches"},
    "fecam": {"net": "patches"},
    "knn": {"net": "patches", "memory": 200},
}
QUICK = {"anchor": "patches", "anchor_width": 20, "updates": 1, "replay": 10}
ANCHORED = {"otc": QUICK, "er": QUICK}


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    found = load_digits()
    return (found.images * 15).astype(np.uint8)[:, None], found.target


def new(method: str, **changes: Any) -> Classifier:
    usual = {"memory": None} if method in FIXED else {"memory": 60}
    return Classifier(method, **usual | (FIXED | ANCHORED)[method] | {"width": 20} | changes)


def moments(model: Classifier) -> dict[str, torch.Tensor]:
    """The sums of all samples, rows in the order of the labels."""
    now = model._fitted().session
    order = np.argsort(now.labels.classes).tolist()
    found = {}
    for part in statistics(now.learner).values():
        settled = part._settled() if hasattr(part, "_settled") else part
        names = ("counts", "sums", "means", "scatters")
        found |= {n: getattr(settled, n)[order] for n in names if hasattr(settled, n)}
        if hasattr(part, "covariance"):
            found["covariance"] = settled.covariance()
    return found


def assert_same(one: Classifier, other: Classifier) -> None:
    a, b = moments(one), moments(other)
    for name, value in a.items():
        torch.testing.assert_close(value, b[name], rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.parametrize(
    "method",
    [
        m if m in ("slda", "otc") else pytest.param(m, marks=pytest.mark.slow)
        for m in FIXED | ANCHORED
    ],
)
@pytest.mark.parametrize("disjoint", [False, True])
def test_merged_models_are_the_one_that_saw_all(
    digits: tuple[np.ndarray, np.ndarray], method: str, disjoint: bool
) -> None:
    """Whatever the order and the grouping; labels overlap or not, pending samples included."""
    n = 1203 if method in FIXED else 553
    x, y = digits[0][:n], digits[1][:n]
    first = new(method).partial_fit(x[:303], y[:303])
    if disjoint:
        shards = [np.flatnonzero(y % 3 == k) for k in range(3)]
    else:
        shards = np.split(np.arange(n), [303, 407])
    a, b, c = (Classifier.like(first).partial_fit(x[own], y[own]) for own in shards)
    assert bool(a.pending_ + b.pending_ + c.pending_) == (method in ANCHORED)
    before = b.state_sha256()
    together = copy.deepcopy(a).merge(b, c)
    turned = copy.deepcopy(c).merge(copy.deepcopy(b).merge(a))
    assert b.state_sha256() == before
    whole = Classifier.like(first).partial_fit(x, y).flush()
    for model in (together, turned):
        model.flush()
        assert dict(sorted(model.counts_.items())) == dict(sorted(whole.counts_.items())), method
    assert_same(together, whole)
    assert_same(together, turned)
    if method not in ("knn", "er", "otc"):  # with a memory, its draw has a say
        test = digits[0][n:]
        assert np.mean(together.predict(test) != turned.predict(test)) <= 0.003
        assert np.mean(together.predict(test) != whole.predict(test)) <= 0.02


def test_nets_do_not_merge_and_the_anchor_answers_after_a_save_too(
    digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    x, y = digits
    a = new("otc").partial_fit(x[:400], y[:400])
    b = Classifier.like(a, seed=1).partial_fit(x[400:700], y[400:700])
    assert a._fitted().session.learner.readout == "fused"
    a.merge(b).save(tmp_path / "ab.ocil")
    again = load(tmp_path / "ab.ocil")
    for model in (a, again):
        learner = model._fitted().session.learner
        assert isinstance(learner, ReplayLearner)
        assert not learner.trained
        assert (learner.readout, len(learner.memory), learner.memory.seen) == ("fused", 60, 700)
        said, own = model.scores(x[700:]), model.scores(x[700:], "anchor")
        assert np.allclose(said, own * learner.anchor.temperature)  # pyright: ignore
        assert model.score(x[700:], y[700:]) > 0.9
    a.partial_fit(x[700:750], y[700:750])
    assert again.partial_fit(x[700:750], y[700:750]).state_sha256() == a.state_sha256()


def test_juries_are_joined_and_a_net_is_trained_anew_from_the_memory(
    digits: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = digits
    a = new("otc", memory=200).partial_fit(x[:600], y[:600])
    b = Classifier.like(a, seed=1).partial_fit(x[600:1200], y[600:1200])
    a.merge(b).flush()
    learner = a._fitted().session.learner
    assert isinstance(learner, ReplayLearner)
    assert sum(learner.jury.counts) == 1200
    held = {image.numpy().tobytes() for image in learner.jury.columns["x"][: len(learner.jury)]}
    assert len(held) == len(learner.jury) == 20
    assert held & {image.tobytes() for image in x[:600]}
    assert held & {image.tobytes() for image in x[600:1200]}
    a.consolidate(updates=20)
    assert learner.trained
    assert a.score(x[1200:], y[1200:]) > 0.9


def test_a_model_like_another_keeps_the_encoder_through_failures(
    digits: tuple[np.ndarray, np.ndarray],
) -> None:
    x, y = digits
    a = new("slda").partial_fit(x[:300], y[:300])
    like = copy.deepcopy(Classifier.like(a))
    with pytest.raises(OcilError):
        like.partial_fit(x[:20, :, :4], y[:20])
    like.partial_fit(x[:20], y[:20]).fit(x[300:340], y[300:340])
    nets = [m._fitted().session.learner.model.net for m in (a, like)]
    assert all(isinstance(net, Fitted) and int(net.fitted) == 300 for net in nets)
    assert all(torch.equal(nets[1].state_dict()[k], v) for k, v in nets[0].state_dict().items())
    assert sum(like.counts_.values()) == 40


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (lambda a, x, y: new("slda", seed=1).partial_fit(x[:300], y[:300]), "another encoder"),
        (lambda a, x, y: new("slda").partial_fit(x[:299], y[:299]).flush(), "has learned 299"),
        (lambda a, x, y: new("ncm").partial_fit(x[:300], y[:300]), "is of method ncm"),
        (lambda a, x, y: Classifier.like(a).partial_fit(x[:9], list("abcdefghi")).flush(), "kinds"),
        (lambda a, x, y: Classifier.like(a), "not fitted"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_changes(
    digits: tuple[np.ndarray, np.ndarray], other: Callable[..., Classifier], said: str
) -> None:
    x, y = digits
    a = new("slda").partial_fit(x[:300], y[:300])
    good, before = Classifier.like(a).partial_fit(x[300:400], y[300:400]), a.state_sha256()
    with pytest.raises((OcilError, BadInput), match=said):
        a.merge(good, other(a, x, y))
    assert a.state_sha256() == before


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("er", {}, "er trains a net, and nets do not merge"),
        ("derpp", {"anchor": "patches"}, r"more than images in its memory \(known, logits"),
    ],
)
def test_methods_without_sums_are_refused(
    digits: tuple[np.ndarray, np.ndarray], method: str, settings: dict[str, Any], said: str
) -> None:
    x, y = digits
    a = Classifier(method, memory=20, **settings).partial_fit(x[:300], y[:300])
    with pytest.raises(OcilError, match=said):
        a.merge(a)


def test_a_module_of_ones_own_is_an_encoder_too() -> None:
    x = np.random.default_rng(0).normal(size=(80, 5)).astype(np.float32)
    y = np.arange(80) % 4
    net = torch.nn.Linear(5, 3).requires_grad_(False)
    a, b = (Classifier("slda", memory=None, net=net).partial_fit(x[s], y[s])
            for s in (slice(50), slice(50, 80)))  # fmt: skip
    assert a.merge(b).counts_ == {0: 20, 1: 20, 2: 20, 3: 20}
    torch.nn.init.ones_(net.weight)
    with pytest.raises(OcilError, match="another encoder"):
        a.merge(Classifier("slda", memory=None, net=net).partial_fit(x[:50], y[:50]))


# ------------------------------------------------------------------ the command line


def images(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    np.savez(path, x=x, y=y)
    return path


def test_learn_with_the_encoder_of_another_and_merge(
    ocil: Callable[..., Any], digits: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    x, y = digits
    a, b, ab = (tmp_path / f"{name}.ocil" for name in ("a", "b", "ab"))
    one, two = (
        images(tmp_path / "1.npz", x[:400], y[:400]),
        images(tmp_path / "2.npz", x[400:], y[400:]),
    )
    assert ocil("learn", one, "--model", a, "--memory", 30, "--updates", 1).code == 0
    assert ocil("learn", two, "--model", b, "--encoder-of", a, "--seed", 1).code == 0
    found = ocil("merge", a, b, "--out", ab)
    assert found.code == 0, found.err
    assert "Nets do not merge: the model answers by its anchor" in found.out
    assert "Merged 2 models: 10 classes, 1797 samples." in found.out
    assert package.load(ab).score(x, y) > 0.95
    for words, said in [
        (("merge", a, "--out", ab), "two or more"),
        (("merge", a, b, "--out", ab), "exists; choose another name"),
        (("merge", a, tmp_path / "c.ocil", "--out", tmp_path / "n.ocil"), "There is no model file"),
        (
            ("learn", two, "--model", tmp_path / "n.ocil", "--encoder-of", a, "--net", "mlp"),
            "--net",
        ),
        (("learn", two, "--model", b, "--encoder-of", a), "leave out --encoder-of"),
    ]:
        found = ocil(*words)
        assert found.is_sentence(), found
        assert said in found.err
    assert not (tmp_path / "n.ocil").exists()
