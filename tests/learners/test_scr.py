"""SCR: two views of everything, no head, and the class means of the memory decide."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch

from ocil import losses
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.learner import Learner
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


def test_the_loss_is_of_the_images_as_they_are_and_augmented(
    learner: Make, batches: Batches
) -> None:
    scr = learner("scr", ema=0.0, tau=0.2, projection=4, width=20)
    for name, value in scr.model.named_parameters():
        value.data *= 0 if name.endswith("bias") else 1  # else all embeddings are nearly the same
    first, second = batches(2)
    scr.learn(first)
    images = torch.cat([first.x, second.x]).float() / 255
    labels = torch.cat([first.y, second.y]).tolist()
    scr.augment = lambda x, generator: 1 - x  # type: ignore
    z = copy.deepcopy(scr.model)(torch.cat([images, 1 - images])).detach().double()
    assert z.shape == (20, 4)
    total = 0.0
    for i in range(20):
        below = sum(math.exp(float(z[i] @ z[j]) / 0.2) for j in range(20) if j != i)
        fellows = [j for j in range(20) if j != i and labels[j % 10] == labels[i % 10]]
        logs = [float(z[i] @ z[j]) / 0.2 - math.log(below) for j in fellows]
        total -= sum(logs) / len(logs) / 20
    assert float(scr.learn(second)["loss"]) == pytest.approx(total, rel=1e-4)


def test_every_image_passes_twice(learner: Make, batches: Batches) -> None:
    scr = learner("scr", memory=9)
    for batch in batches(3):
        scr.learn(batch)
    # replayed: 0, then 5, then 7 of the 9 held
    assert scr.backbone_images == 2 * (5 + 10 + 12)


def test_net_and_projection_are_trained_and_there_is_no_head(
    learner: Make, batches: Batches
) -> None:
    scr = learner("scr")
    before = copy.deepcopy(scr.model.state_dict())
    for batch in batches(2):
        scr.learn(batch)
    after = scr.model.state_dict()
    assert {name.split(".")[0] for name in after} == {"net", "project"}
    assert all(not torch.equal(before[name], after[name]) for name in after)
    assert list(scr.readouts()) == ["mean", "ema-mean"]
    assert scr.readout == "ema-mean"
    assert learner("scr", ema=0.0).readout == "mean"


def test_the_nearest_class_mean_of_the_memory_decides(learner: Make, batches: Batches) -> None:
    scr = learner("scr", memory=20)
    *before, last = batches(5)
    for batch in before:
        scr.learn(batch)
    assert scr.memory is not None
    net = scr.model.net

    def unit(x: torch.Tensor) -> torch.Tensor:
        h = net(x[None].float() / 255)[0].detach()
        return h / h.norm()

    held = [(unit(x), y) for x, y in zip(scr.memory.columns["x"], scr.memory.labels, strict=True)]
    for x, scores in zip(last.x, scr.scores(last.x, "mean"), strict=True):
        for c in range(4):
            mean = torch.stack([h for h, y in held if y == c]).mean(0)
            distance = (unit(x) - mean / mean.norm()).square().sum()
            torch.testing.assert_close(-scores[c], distance, rtol=1e-3, atol=1e-5)


def test_skip_first_only_stores_the_first_batch(learner: Make, batches: Batches) -> None:
    scr = learner("scr", skip_first=True)
    first, second = batches(2)
    assert scr.learn(first) == {}
    assert scr.backbone_images == 0
    assert "loss" in scr.learn(second)
    assert registry.get("scr").presets["reference"]["skip_first"]


@pytest.mark.parametrize("method", ["scr", "gsa", "cope"])
def test_a_memory_is_needed(learner: Make, method: str) -> None:
    with pytest.raises(OcilError, match=f"{method} cannot do without a memory"):
        learner(method, memory=None)


def test_the_review_goes_through_the_memory_once_with_a_tenth_of_the_gradient(
    learner: Make, batches: Batches
) -> None:
    """After each task: batches of `replay` in random order, the rest of the memory left out."""
    scr = learner(
        "scr", review=True, ema=0.0, optimizer="sgd", lr=0.1, weight_decay=0.0, memory=12, replay=5
    )
    assert scr.needs_tasks
    for batch in batches(3):
        scr.learn(batch)
    before, seen = copy.deepcopy(scr.model), scr.backbone_images
    draw = torch.Generator().set_state(scr.generators["memory"].get_state())
    held = scr.memory.read(range(12))  # type: ignore
    scr.end_task(0, torch.empty(0), torch.empty(0))
    order = torch.randperm(12, generator=draw)
    for picked in (order[:5], order[5:10]):
        x, y = held["x"][picked].float() / 255, held["y"][picked]
        z = before(torch.cat([x, x]))  # no augmentation here: both views are the same
        loss = losses.supervised_contrastive(z, y.repeat(2), 0.07)
        before.zero_grad()
        loss.backward()
        with torch.no_grad():
            for weight in before.parameters():
                weight -= 0.1 * weight.grad / 10  # type: ignore
    assert scr.backbone_images == seen + 2 * 10
    for name, value in scr.model.state_dict().items():
        torch.testing.assert_close(value, before.state_dict()[name])


def test_without_the_review_the_end_of_a_task_changes_nothing(
    learner: Make, batches: Batches
) -> None:
    scr = learner("scr")
    assert not scr.needs_tasks
    scr.learn(batches(1)[0])
    before = scr.state_dict()
    scr.end_task(0, torch.empty(0), torch.empty(0))
    assert all(torch.equal(value, scr.state_dict()[name]) for name, value in before.items())


def test_a_memory_smaller_than_a_batch_is_not_reviewed(learner: Make, batches: Batches) -> None:
    scr = learner("scr", review=True, replay=50)
    scr.learn(batches(1)[0])
    before = copy.deepcopy(scr.model.state_dict())
    scr.end_task(0, torch.empty(0), torch.empty(0))
    assert all(torch.equal(value, scr.model.state_dict()[name]) for name, value in before.items())


def test_without_replay_there_is_nothing_to_review(learner: Make, batches: Batches) -> None:
    scr = learner("scr", review=True, replay=0)
    (batch,) = batches(1)
    scr.learn(batch)
    before = copy.deepcopy(scr.state_dict())
    scr.end_task(0, batch.x, batch.y)
    assert all(torch.equal(value, before[name]) for name, value in scr.state_dict().items())


def test_a_review_makes_the_means_of_before_stale(learner: Make, batches: Batches) -> None:
    scr = learner("scr", review=True, replay=4)
    for batch in batches(3):
        scr.learn(batch)
    before = scr.scores(batch.x, "mean")
    scr.end_task(0, batch.x, batch.y)
    after = scr.scores(batch.x, "mean")
    scr.cache.clear()
    assert torch.equal(after, scr.scores(batch.x, "mean"))
    assert not torch.equal(after, before)
