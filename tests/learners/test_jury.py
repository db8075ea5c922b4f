"""The jury: who sits on it, what it decides, and that nothing of it is ever trained on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ocil
from ocil.learners.jury import Jury, answer, score, weigh
from ocil.learners.replay import ReplayLearner
from ocil.stream import Batch

DRAW = np.random.default_rng(0)
Y = np.arange(3).repeat(200)
X = (DRAW.normal(size=(600, 6)) + 2.5 * np.eye(6)[Y]).astype(np.float32)


def taught(**given: object) -> ocil.Classifier:
    settings = {"memory": 200, "net": "mlp", "width": 8, "anchor_width": 30} | given
    return ocil.Classifier("otc", **settings).partial_fit(X, Y).flush()  # pyright: ignore


def learner_of(model: ocil.Classifier) -> ReplayLearner:
    learner = model._fitted().session.learner
    assert isinstance(learner, ReplayLearner)
    return learner


def test_every_tenth_sample_of_a_class_sits_while_the_class_has_too_few() -> None:
    jury, seed = Jury(6), torch.Generator().manual_seed(0)
    x = torch.arange(100.0)[:, None]
    y = torch.tensor([0] * 60 + [1] * 40)
    left = [jury.take(Batch(x[i : i + 7], y[i : i + 7]), 2, seed).x for i in range(0, 100, 7)]
    kept = torch.cat(left)[:, 0].tolist()
    held = jury.columns["x"][: len(jury), 0].tolist()
    assert sorted(held) == [9, 19, 29, 69, 79, 89]  # three of each: the first tenth ones
    assert sorted(kept + held) == list(range(100))


def test_jurors_count_in_the_anchor_but_never_in_a_gradient_or_the_memory() -> None:
    learner = learner_of(taught())
    assert (learner.jury.capacity, learner.memory.capacity) == (20, 180)
    assert learner.anchor is not None
    assert learner.anchor.moments.total == 600
    assert 540 <= learner.memory.seen <= 600 - len(learner.jury)
    held = {tuple(row) for row in learner.jury.columns["x"][: len(learner.jury)].tolist()}
    memory = {tuple(row) for row in learner.memory.columns["x"][: len(learner.memory)].tolist()}
    assert len(held) == 20
    assert not held & memory


def test_weights_are_those_with_the_least_loss_and_stay_at_the_start_without_evidence() -> None:
    y = torch.arange(40) % 2
    right = torch.nn.functional.one_hot(y, 2).double()
    noise = torch.from_numpy(4 * DRAW.normal(size=(40, 2)))
    own, other = weigh([right, noise], y, [1.0, 1.0])
    assert own > 2  # never wrong: surer than it was
    assert other < 0.6
    assert weigh([right[:0], noise[:0]], y[:0], [1.0, 0.25]) == [1.0, 0.25]


def test_one_juror_alone_does_not_decide() -> None:
    y = torch.zeros(30, dtype=torch.int64)
    words = torch.tensor([[8.0, 0.0]]).repeat(30, 1)
    words[0] = torch.tensor([0.0, 400.0])  # one that is wrong beyond measure
    assert weigh([words], y, [1.0])[0] >= 0.5


def test_the_answer_of_a_judged_classifier_is_its_jury_s() -> None:
    model = taught()
    learner = learner_of(model)
    assert len(learner.jury.weights) == 2
    learner.jury.weights = [0.5, 2.0]
    assert learner.anchor is not None
    features, net = learner.features(torch.from_numpy(X[:5])), learner.learned_scores()
    assert net is not None
    words = [learner.anchor.tempered(features["anchor"]), net(features)]
    wanted = answer(words, learner.jury.weights).softmax(1)
    assert np.allclose(model.predict_proba(X[:5]), wanted.detach().numpy(), atol=1e-5)


def test_a_score_counts_classes_by_their_samples() -> None:
    y = torch.tensor([0, 0, 1, 1])
    answers = torch.tensor([[1.0, 0], [1, 0], [1, 0], [0, 1]])
    found = score(answers, y, [300, 100, 50])
    assert found.accuracy == pytest.approx((300 * 1.0 + 100 * 0.5) / 400)
    assert found.by_class == {0: (2, 2), 1: (1, 2)}  # the third was not asked
    assert 0 < found.low < found.accuracy < found.high <= 1


def test_it_knows_how_good_it_is() -> None:
    model = taught(memory=600)
    fresh = (DRAW.normal(size=(3000, 6)) + 2.5 * np.eye(6)[np.arange(3000) % 3]).astype(np.float32)
    found, true = model.score_, model.score(fresh, np.arange(3000) % 3)
    assert found is not None
    assert found.asked == 60
    assert found.low <= true <= found.high


def test_without_training_samples_left_out_tell_it() -> None:
    for model in (taught(effort="low"), ocil.Classifier("slda", net="identity").fit(X, Y)):
        found = model.score_
        assert found is not None
        assert found.asked > 100
        assert abs(found.accuracy - model.score(X, Y)) < 0.03
    assert ocil.Classifier("ncm", net="identity", memory=None).fit(X, Y).score_ is None


def test_a_jury_survives_saving_and_forgets_with_its_class(tmp_path) -> None:
    model = taught()
    model.save(tmp_path / "a.ocil")
    again = ocil.load(tmp_path / "a.ocil")
    assert again.state_sha256() == model.state_sha256()
    assert again.score_ == model.score_
    jury = learner_of(again.forget(1)).jury
    assert jury.counts == [200, 200]
    assert set(jury.labels) == {0, 1}


def test_effort_low_trains_nothing_and_few_samples_get_more_steps() -> None:
    low = learner_of(taught(effort="low"))
    assert (low.updates, low.trained, low.backbone_images) == (0, False, 0)
    assert len(low.memory) == 180
    model = taught(effort="auto", max_updates=3, memory=1000)
    assert learner_of(model).updates == 3
    learner_of(model).memory.seen = 10**6
    assert learner_of(model).updates == 1
    assert learner_of(taught(updates=2)).updates == 2  # what is given is not exceeded
    assert learner_of(taught(net="auto")).updates == 0  # vectors


def test_a_class_may_sit_before_anything_of_it_is_learned() -> None:
    y = np.arange(30).repeat(20)
    x = (DRAW.normal(size=(600, 6)) + 3 * DRAW.normal(size=(30, 6))[y]).astype(np.float32)
    model = ocil.Classifier("otc", memory=300, net="identity", anchor="none", batch=20)
    for part in np.split(np.arange(600), 30):  # batches of one class each
        model.partial_fit(x[part], y[part])
    assert learner_of(model).jury.judged
    assert model.score(x, y) > 0.5


def test_any_cut_of_the_stream_gives_the_same_jury() -> None:
    parts = ocil.Classifier("otc", memory=200, net="mlp", width=8, anchor_width=30)
    whole = taught()
    for part in np.split(np.arange(600), [1, 8, 33, 400, 407]):
        parts.partial_fit(X[part], Y[part])
    assert parts.flush().state_sha256() == whole.state_sha256()
