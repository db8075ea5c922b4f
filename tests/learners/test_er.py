"""ER against a step written out by hand, and the floor and the ceiling that share its code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ocil import augment
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.learner import Learner
from ocil.memory import Memory
from ocil.nets.heads import grow_head
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


class Reference:
    """ER in the plainest form: two linear layers, plain AdamW or SGD, weights kept by class id."""

    def __init__(self, learner: Learner) -> None:
        self.s = learner.settings
        self.model = copy.deepcopy(learner.model)  # the same initial weights and head generator
        self.generators = {
            k: torch.Generator().set_state(g.get_state()) for k, g in learner.generators.items()
        }
        self.model.head.generator = self.generators["init"]
        self.held: list[tuple[torch.Tensor, int]] = []
        self.seen = self.classes = 0
        kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[self.s.optimizer]
        self.optimizer = kind(
            self.model.parameters(), lr=self.s.lr, weight_decay=self.s.weight_decay
        )

    def draw(self) -> list[tuple[torch.Tensor, int]]:
        """Floyd's sample, one random number for each image wanted."""
        count, wanted = len(self.held), self.s.replay
        if count <= wanted:
            return list(self.held)
        chosen: list[int] = []
        draws = torch.rand(wanted, dtype=torch.float64, generator=self.generators["memory"])
        for top, u in zip(range(count - wanted, count), draws.tolist(), strict=True):
            pick = int(u * (top + 1))
            chosen.append(top if pick in chosen else pick)
        return [self.held[i] for i in chosen]

    def learn(self, batch: Batch) -> torch.Tensor:
        classes = max(self.classes, int(batch.y.max()) + 1)
        if classes > self.classes:
            grow_head(self.model.head, classes, self.optimizer)
            self.classes = classes
        loss = torch.zeros(())
        for _ in range(self.s.updates):
            old = self.draw()
            x = torch.stack([*(image for image, _ in old), *batch.x]).float() / 255
            y = torch.tensor([*(label for _, label in old), *batch.y.tolist()])
            x = augment.build(self.s.augment)(x, self.generators["augment"])
            net = self.model.net
            h = torch.relu(x.flatten(1) @ net.hidden1.weight.T + net.hidden1.bias)  # type: ignore
            h = torch.relu(h @ net.hidden2.weight.T + net.hidden2.bias)  # type: ignore
            logits = h @ self.model.head.weight.T + self.model.head.bias
            loss = -torch.log_softmax(logits, 1)[torch.arange(len(y)), y].sum() / len(y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.keep(batch)
        return loss.detach()

    def keep(self, batch: Batch) -> None:
        draws = torch.rand(len(batch.y), dtype=torch.float64, generator=self.generators["memory"])
        for image, label, u in zip(batch.x, batch.y.tolist(), draws.tolist(), strict=True):
            if self.seen < self.s.memory:
                self.held.append((image, label))
            elif (slot := int(u * (self.seen + 1))) < self.s.memory:
                self.held[slot] = (image, label)
            self.seen += 1


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"optimizer": "sgd", "lr": 0.1, "updates": 2},
        {"augment": "affine", "updates": 2, "memory": 8},
    ],
    ids=["adamw", "sgd, two steps", "affine, two steps"],
)
def test_er_is_the_step_written_out_by_hand(
    learner: Make, batches: Batches, changes: dict[str, Any]
) -> None:
    er = learner(**changes)
    reference = Reference(er)
    for batch in batches(9):
        loss = er.learn(batch)["loss"]
        torch.testing.assert_close(loss, reference.learn(batch))
    ours, theirs = er.model.state_dict(), reference.model.state_dict()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5)
    assert er.memory is not None
    assert er.memory.labels == [label for _, label in reference.held]
    for purpose, generator in er.generators.items():
        assert torch.equal(generator.get_state(), reference.generators[purpose].get_state())


def test_the_memory_comes_first_then_the_stream(learner: Make, batches: Batches) -> None:
    er = learner(memory=4)
    first, second = batches(2)
    er.learn(first)
    x, y = er.with_replay(second)
    assert er.memory is not None
    assert torch.equal(y[4:], second.y)
    assert torch.equal(x[4:], second.x)
    assert torch.equal(x[:4], er.memory.columns["x"])
    assert x.dtype == torch.uint8


def test_the_memory_holds_raw_images_of_batches_already_learned(
    learner: Make, batches: Batches
) -> None:
    er = learner(augment="affine")
    for n, batch in enumerate(batches(3)):
        er.learn(batch)
        assert er.memory is not None
        assert len(er.memory) == 5 * (n + 1)
        assert torch.equal(er.memory.columns["x"][5 * n : 5 * n + 5], batch.x)


def test_images_through_the_net_are_counted(learner: Make, batches: Batches) -> None:
    er = learner(updates=2, memory=9)
    for batch in batches(3):
        er.learn(batch)
    # replayed: 0, then 5, then 7 of the 9 held; twice each with the 5 of the stream
    assert er.backbone_images == 2 * (5 + 10 + 12)
    before = er.backbone_images
    er.scores(batches(1)[0].x)
    assert er.backbone_images == before


def test_skip_first_only_stores_the_first_batch(learner: Make, batches: Batches) -> None:
    er = learner(skip_first=True)
    before = copy.deepcopy(er.model.net.state_dict())
    first, second = batches(2)
    assert er.learn(first) == {}
    assert all(torch.equal(v, before[k]) for k, v in er.model.net.state_dict().items())
    assert er.backbone_images == 0
    assert er.memory is not None
    assert len(er.memory) == 5
    assert "loss" in er.learn(second)
    assert any(not torch.equal(v, before[k]) for k, v in er.model.net.state_dict().items())


def test_the_first_batch_is_learned_unless_told_otherwise(learner: Make, batches: Batches) -> None:
    for changes, learned in (({}, True), (registry.get("er").presets["reference"], False)):
        er = learner(**changes)
        before = copy.deepcopy(er.model.net.state_dict())
        er.learn(batches(1)[0])
        after = er.model.net.state_dict()
        assert all(torch.equal(v, before[k]) for k, v in after.items()) == (not learned)


def test_a_loss_is_detached_and_a_scalar(learner: Make, batches: Batches) -> None:
    loss = learner().learn(batches(1)[0])["loss"]
    assert loss.shape == ()
    assert not loss.requires_grad


def test_replay_zero_learns_the_stream_alone(learner: Make, batches: Batches) -> None:
    er = learner(replay=0)
    for batch in batches(3):
        er.learn(batch)
    assert er.backbone_images == 15


# ------------------------------------------------------------------ floor and ceiling


def test_finetune_is_the_step_without_a_memory(learner: Make, batches: Batches) -> None:
    floor, er = learner("finetune"), learner(replay=0)
    for batch in batches(4):
        assert torch.equal(floor.learn(batch)["loss"], er.learn(batch)["loss"])
    assert not floor.memory.capacity and "memory" not in floor.parts
    assert list(floor.readouts()) == ["head", "ema-head"]


def test_finetune_refuses_a_memory(learner: Make) -> None:
    with pytest.raises(OcilError, match="finetune keeps no memory, but memory is 20"):
        learner("finetune", memory=20)


def test_joint_is_er_on_another_order(learner: Make, batches: Batches) -> None:
    ceiling, er = learner("joint"), learner("er")
    assert ceiling.settings.order == "joint"
    assert isinstance(ceiling.memory, Memory)
    for batch in batches(4):
        assert torch.equal(ceiling.learn(batch)["loss"], er.learn(batch)["loss"])


def test_cross_entropy_covers_the_classes_seen(learner: Make, batches: Batches) -> None:
    er = learner(ema=0.0)
    first = batches(1)[0]
    model = copy.deepcopy(er.model)
    model.head.generator.set_state(er.generators["init"].get_state())
    grow_head(model.head, 2)
    wanted = F.cross_entropy(model(first.x.float() / 255), first.y)
    torch.testing.assert_close(er.learn(first)["loss"], wanted.detach())
