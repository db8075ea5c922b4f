"""ER-ACE: what the stream may push, and how the two losses add up."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F

from ocil.learners.learner import Learner
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


def test_the_loss_is_the_sum_of_two_means(learner: Make, batches: Batches) -> None:
    ace = learner("er-ace", ema=0.0, replay=64)
    *before, last = batches(5)  # classes 0..3, the batch has 2 and 3
    for batch in before:
        ace.learn(batch)
    assert ace.memory is not None
    x, y = ace.memory.columns["x"][:20].float() / 255, ace.memory.columns["y"][:20]
    model = copy.deepcopy(ace.model)
    stream = model(last.x.float() / 255)[:, 2:]  # only the columns of its own classes
    wanted = F.cross_entropy(stream, last.y - 2) + F.cross_entropy(model(x), y)
    torch.testing.assert_close(ace.learn(last)["loss"], wanted.detach())
    assert ace.backbone_images == 5 * 5 + 5 + 10 + 15 + 20


def test_the_stream_leaves_the_logits_of_older_classes_alone(
    learner: Make, batches: Batches
) -> None:
    """Without replay the rows of classes 0 and 1 get no gradient; those of ER do."""
    moved = {}
    for method in ("er-ace", "er"):
        one = learner(method, replay=0, ema=0.0, optimizer="sgd", weight_decay=0.0)
        *before, last = batches(5)
        for batch in before:
            one.learn(batch)
        old = one.model.head.weight.detach()[:2].clone()
        one.learn(last)
        moved[method] = not torch.equal(old, one.model.head.weight.detach()[:2])
    assert moved == {"er-ace": False, "er": True}


def test_a_batch_of_one_class_changes_nothing_without_replay(
    learner: Make, batches: Batches
) -> None:
    ace = learner("er-ace", replay=0, optimizer="sgd", weight_decay=0.0)
    first, second = batches(2)
    ace.learn(first)
    before = copy.deepcopy(ace.model.state_dict())
    ace.learn(Batch(second.x, torch.zeros_like(second.y), 1, 0))
    assert all(torch.equal(v, before[k]) for k, v in ace.model.state_dict().items())
