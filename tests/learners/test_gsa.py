"""GSA: who is drawn, what competes with what, and how the weights of the classes come about."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ocil.learners.gsa import Gsa
from ocil.stream import Batch

Batches = Callable[..., list[Batch]]


@pytest.fixture
def gsa(learner: Callable[..., Any]) -> Callable[..., Gsa]:
    def make(**changes: Any) -> Gsa:
        return learner("gsa", **({"ema": 0.0, "memory": 60, "replay": 12} | changes))

    return make


def fed(gsa: Gsa, stream: list[Batch]) -> Gsa:
    for batch in stream:
        gsa.learn(batch)
    return gsa


def test_the_stream_is_joined_by_its_own_task_and_the_mix_by_older_ones(gsa, batches: Batches):
    stream = batches(8)  # the last two batches are of task 2: classes 4 and 5
    one = fed(gsa(current=4), stream[:7])
    x, y, mix_x, mix_y = one.choose(stream[7])
    assert torch.equal(x[:5], stream[7].x)
    assert len(y) == 5 + 4
    assert set(y[5:].tolist()) <= {4, 5}
    # 2 of 6 classes are new: 12 * 2 / 6 of the nine above, and 12 * 4 / 6 of the older classes
    assert torch.equal(mix_x[:4], x[:4])
    assert len(mix_y) == 4 + 8
    assert set(mix_y[4:].tolist()) <= {0, 1, 2, 3}


def test_the_mix_takes_the_memory_in_no_order_of_classes(gsa, batches: Batches):
    stream = batches(9)
    one = fed(gsa(current=22, replay=27, memory=60), stream[:8])  # holds 4 and 6 of classes 4 and 5
    counts = {4: 0, 5: 0}
    for _ in range(300):  # 27 * 2 / 6 images are new: five of the stream and four of the memory
        _, _, _, mix_y = one.choose(stream[8])
        for label in mix_y[5:9].tolist():
            counts[label] += 1
    assert counts[4] / (4 * 300) == pytest.approx(0.4, abs=0.05)


def test_in_the_first_task_the_mix_is_what_there_is_of_it(gsa, batches: Batches):
    stream = batches(2)
    one = gsa()
    fed(one, stream[:1])
    x, y, mix_x, mix_y = one.choose(stream[1])
    assert torch.equal(x, mix_x)
    assert torch.equal(y, mix_y)
    assert len(y) == 10


def test_the_mix_is_never_empty(gsa, batches: Batches):
    # one image wanted, of which the new classes' share is none, and no older class is held
    one = gsa(replay=1, memory=1)
    stream = batches(9)
    for batch in stream:
        assert one.learn(batch)["loss"].isfinite()


def test_the_second_view_is_the_mirrored_first(gsa):
    x = torch.randint(256, (3, 1, 4, 4), dtype=torch.uint8)
    views = gsa(augment="affine").views(x)
    assert torch.equal(views[3:], views[:3].flip(3))
    other = gsa(augment="affine", mirror=False).views(x)
    assert torch.equal(other[:3], views[:3])
    assert not torch.equal(other[3:], views[3:])


def by_hand(gsa: Gsa, batch: Batch, weights: list[float]) -> float:
    """2 L_mix + L_new of the next step, which draws the same."""
    twin = copy.deepcopy(gsa)
    twin.add_classes(batch.y)
    twin.balance.begin_batch(batch.task, twin.known)
    x, y, mix_x, mix_y = twin.choose(batch)
    new, mix = 0.0, 0.0
    for view in (0, 1):
        for part, labels in ((x, y), (mix_x, mix_y)):
            images = part.float() / 255
            logits = twin.model(images.flip(3) if view else images).detach()
            for row, label in zip(logits, labels.tolist(), strict=True):
                if part is x:
                    row = row[twin.balance.older :]
                    new -= float(row.log_softmax(0)[label - twin.balance.older]) / (2 * len(y))
                else:
                    mix -= weights[label] * float(row.log_softmax(0)[label]) / (2 * len(mix_y))
    return 2 * mix + new


@pytest.mark.parametrize("place", [3, 4])  # the fourth batch begins a task
def test_the_loss_of_a_warm_up_batch_has_equal_weights(gsa, batches: Batches, place: int):
    *before, batch = batches(place + 1)
    one = fed(gsa(warmup=2), before)
    wanted = by_hand(one, batch, [1.0] * 4)
    assert float(one.learn(batch)["loss"]) == pytest.approx(wanted, rel=1e-4)


def test_later_every_class_has_the_weight_of_its_gradients(gsa, batches: Batches):
    stream = batches(6)
    one = fed(gsa(warmup=2), stream[:5])
    twin = copy.deepcopy(one)
    _, _, mix_x, mix_y = twin.choose(stream[5])
    images = torch.cat([mix_x, mix_x.flip(3)]).float() / 255
    logits, labels = twin.model(images).detach(), mix_y.repeat(2)
    up, down = one.balance.masses.clone()
    for row, label in zip(logits.softmax(1), labels.tolist(), strict=True):
        for c in range(4):
            if c == label:
                up[c] += 1 - row[c]
            else:
                down[c] += row[c]
    weights = [2 / (1 + math.exp(1 - float(u / d))) for u, d in zip(up, down, strict=True)]
    assert max(abs(w - 1) for w in weights) > 0.05
    wanted = by_hand(one, stream[5], weights)
    assert float(one.learn(stream[5])["loss"]) == pytest.approx(wanted, rel=1e-4)
    torch.testing.assert_close(one.balance.masses, torch.stack([up, down]))


def test_the_masses_are_kept_over_tasks_and_grow_by_zeros(gsa, batches: Batches):
    stream = batches(4)
    one = fed(gsa(), stream[:3])
    before = one.balance.masses.clone()
    one.learn(stream[3])
    assert before.shape == (2, 2)
    assert one.balance.masses.shape == (2, 4)
    assert (one.balance.masses[:, :2] >= before).all()


def test_new_images_never_push_older_logits_in_their_own_loss(gsa, batches: Batches):
    """Without the mix, rows of older classes keep their weights."""
    stream = batches(5)
    one = gsa(mix=0.0, optimizer="sgd", weight_decay=0.0)
    fed(one, stream[:4])
    old = one.model.head.weight.detach()[:2].clone()
    one.learn(stream[4])
    assert torch.equal(one.model.head.weight.detach()[:2], old)


def test_a_class_of_the_task_that_is_not_in_the_batch_competes_too(gsa, batches: Batches):
    stream = batches(5)
    one = fed(gsa(warmup=9, current=0), stream[:4])
    lone = Batch(stream[4].x, torch.full((5,), 2), 4, 1)  # class 3 was in the batch before
    wanted = by_hand(one, lone, [1.0] * 4)
    assert float(one.learn(lone)["loss"]) == pytest.approx(wanted, rel=1e-4)


def test_an_older_class_that_comes_back_competes(gsa, batches: Batches):
    stream = batches(4)
    one = fed(gsa(), stream[:3])
    back = Batch(stream[3].x, torch.tensor([2, 0, 3, 2, 1]), 3, 1)
    assert one.learn(back)["loss"].isfinite()


@pytest.mark.parametrize("mirror", [True, False])
def test_images_through_the_backbone(gsa, batches: Batches, mirror: bool):
    stream = batches(8)
    one = fed(gsa(current=4, mirror=mirror), stream[:7])
    before = one.backbone_images
    one.learn(stream[7])
    assert one.backbone_images - before == 2 * (5 + 4) + 2 * (4 + 8)


def test_vectors_are_not_mirrored(learner, batches: Batches):
    one = learner("gsa", shape=(6,), net="identity")
    x = F.one_hot(torch.arange(3), 6).float()
    assert torch.equal(one.views(x), torch.cat([x, x]))


def test_a_state_with_other_classes_is_refused(gsa, batches: Batches):
    one = fed(gsa(), batches(2))
    state = one.state_dict()
    with pytest.raises(ValueError, match="accumulated gradients"):
        gsa().load_state_dict(state | {"gsa.masses": torch.zeros(2, 5)})
    with pytest.raises(KeyError):
        gsa().load_state_dict({k: v for k, v in state.items() if k != "gsa.counts"})
