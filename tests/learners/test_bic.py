"""BiC: its loss image by image, what is held out, and what a task's end corrects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ocil.errors import OcilError
from ocil.learners.bic import Bic
from ocil.stream import Batch

Make = Callable[..., Bic]
Batches = Callable[..., list[Batch]]


def taught(learner: Make, batches: Batches, count: int = 8, **changes: Any) -> Bic:
    """A learner after `count` batches of tasks of three, task ends included."""
    bic = learner("bic", **changes)
    for n, batch in enumerate(batches(count)):
        if n % 3 == 0:
            bic.begin_task(n // 3)
        bic.learn(batch)
        if n % 3 == 2:
            bic.end_task(n // 3, batch.x, batch.y)
    return bic


def loss_by_hand(bic: Bic, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Image by image and class by class, with the cross-entropy form of the distillation."""
    s, old, bias = bic.settings, bic.old, bic.bias["live"][:, 0]
    assert bic.teacher is not None
    z, wanted = bic.model(x), bic.teacher(x)
    total = torch.zeros(())
    for i in range(len(y)):
        mine = torch.stack([bias[0, c] * z[i, c] + bias[1, c] for c in range(bic.classes)])
        theirs = torch.stack([bias[0, c] * wanted[i, c] + bias[1, c] for c in range(old)])
        ce = -torch.log_softmax(mine, 0)[y[i]]
        q = torch.softmax(theirs / s.temperature, 0).detach()
        kd = -(q * torch.log_softmax(mine[:old] / s.temperature, 0)).sum()
        lam = old / bic.classes
        total = total + (
            (1 - lam) * ce + lam * kd if s.weighting == "convex" else ce + s.distill * kd
        )
    return total / len(y)


@pytest.mark.parametrize("weighting", ["convex", "sum"])
def test_the_loss_image_by_image(learner: Make, batches: Batches, weighting: str) -> None:
    bic = taught(learner, batches, weighting=weighting, temperature=3.0)
    assert (bic.old, bic.classes) == (4, 6)
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(9, 1, 4, 4, generator=draw), torch.arange(9) % 6
    parameters = list(bic.model.parameters())
    ours = torch.autograd.grad(bic.loss(x, y, torch.ones(1)), parameters)
    # The values differ by the teacher's entropy, a constant; the gradients must not.
    theirs = torch.autograd.grad(loss_by_hand(bic, x, y), parameters)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_without_a_task_before_it_is_cross_entropy(learner: Make, batches: Batches) -> None:
    bic, first = learner("bic"), batches(1)[0]
    bic.begin_task(0)
    bic.add_classes(first.y)
    x = first.x.float() / 255
    wanted = F.cross_entropy(bic.model(x), first.y)
    torch.testing.assert_close(bic.loss(x, first.y, torch.ones(1)), wanted)
    assert bic.teacher is None


def test_neither_teacher_nor_pairs_are_trained(learner: Make, batches: Batches) -> None:
    bic = taught(learner, batches, 7)
    assert bic.teacher is not None
    before = {k: v.clone() for k, v in bic.teacher.state_dict().items()}
    pairs = bic.bias["live"].clone()
    bic.learn(batches(8)[7])
    assert all(torch.equal(v, before[k]) for k, v in bic.teacher.state_dict().items())
    assert torch.equal(bic.bias["live"], pairs)
    assert not bic.teacher.training


def test_student_and_teacher_see_the_same_views(learner: Make, batches: Batches) -> None:
    bic = taught(learner, batches, 6, augment="affine")
    bic.begin_task(2)
    seen: list[torch.Tensor] = []
    outputs = bic.forward_features
    bic.forward_features = lambda model, x: seen.append(x) or outputs(model, x)  # type: ignore
    bic.learn(batches(7)[6])
    assert len(seen) == 2
    assert torch.equal(seen[0], seen[1])


def test_images_through_the_net_are_counted(learner: Make, batches: Batches) -> None:
    bic = learner("bic", memory=50)  # 45 to replay, 5 held
    bic.begin_task(0)
    first, second, third, fourth = batches(4)
    for batch in (first, second, third):
        bic.learn(batch)
    # held out: two of each of the two classes, all in the first batch
    assert len(bic.held) == 4
    assert bic.backbone_images == 0 + (1 + 5) + (6 + 5)  # a single image is not learned
    bic.begin_task(1)
    before = bic.backbone_images
    bic.learn(fourth)
    held = [label for label in bic.held.labels if label >= 2]
    assert bic.backbone_images == before + 2 * (7 + 5 - len(held))
    before = bic.backbone_images
    bic.end_task(1, fourth.x, fourth.y)
    assert bic.backbone_images == before + 2 * len(bic.held)  # live and averaged weights


def rows(x: torch.Tensor) -> set[bytes]:
    return {one.numpy().tobytes() for one in x}


@pytest.mark.parametrize("epochs", [1, 3])
def test_what_is_held_out_is_never_trained_on(learner: Make, batches: Batches, epochs: int) -> None:
    bic = learner("bic", memory=50, replay=60, epochs=epochs)
    trained: set[bytes] = set()
    augmented = bic.augmented
    bic.augmented = lambda x: trained.update(rows(x)) or augmented(x)  # type: ignore
    for task in range(2):
        bic.begin_task(task)
        for epoch in range(epochs):
            for batch in batches(6)[3 * task : 3 * task + 3]:
                bic.learn(replace(batch, epoch=epoch, epochs=epochs))
        held = rows(bic.held.columns["x"][: len(bic.held)])
        assert len(held) == 4 + task
        assert not held & trained
        assert bic.memory is not None
        assert not held & rows(bic.memory.columns["x"][: len(bic.memory)])
    assert len(trained) == 30 - 4 - 2  # one of the first task left when the second came
    assert set(bic.held.labels) == {0, 1, 2, 3}


@pytest.mark.parametrize(("again", "seen"), [(False, 13), (True, 26)])
def test_later_epochs_offer_again_or_not(
    learner: Make, batches: Batches, again: bool, seen: int
) -> None:
    bic = learner("bic", offer_every_epoch=again, epochs=2)  # two of 20 held
    for epoch in range(2):
        for batch in batches(3):
            bic.learn(replace(batch, epoch=epoch, epochs=2))
    assert bic.memory is not None
    assert bic.memory.seen == seen


@pytest.mark.parametrize(("method", "first"), [("bic", 40), ("bic-ac", 30)])
def test_the_learning_rate_drops_three_times(
    learner: Make, batches: Batches, method: str, first: int
) -> None:
    bic, batch = learner(method, schedule="steps", lr=0.5), batches(1)[0]
    for epoch, drops in ((0, 0), (first - 1, 0), (first, 1), (60, 2), (79, 2), (80, 3), (0, 0)):
        bic.learn(replace(batch, epoch=epoch, epochs=100))
        assert bic.optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.1**drops)


@pytest.mark.parametrize(("memory", "held"), [(2, 1), (3, 1), (20, 2), (500, 50), (1005, 101)])
def test_the_held_images_are_part_of_the_memory(learner: Make, memory: int, held: int) -> None:
    bic = learner("bic", memory=memory)
    assert bic.memory is not None
    assert (bic.held.capacity, bic.memory.capacity) == (held, memory - held)


def test_the_end_of_a_task_corrects_its_classes_alone(learner: Make, batches: Batches) -> None:
    bic = taught(learner, batches, 3, memory=100)
    start = torch.stack([torch.ones(1, 2), torch.zeros(1, 2)])
    assert torch.equal(bic.bias["live"], start)  # nothing to correct after the first
    bic = taught(learner, batches, 6, memory=100)
    first = {name: bias.clone() for name, bias in bic.bias.items()}
    for bias in first.values():
        assert torch.equal(bias[..., :2], start)
        assert not torch.equal(bias[..., 2:], start)
        assert torch.equal(bias[..., 2], bias[..., 3])
    assert not torch.equal(first["live"], first["average"])
    bic = taught(learner, batches, 9, memory=100)
    for bias in bic.bias.values():  # the averaged weights take over the pairs they learn under
        assert torch.equal(bias[..., :4], first["live"])
        assert not torch.equal(bias[..., 4:5], torch.tensor([1.0, 0.0]).view(2, 1, 1))


def test_the_correction_fits_the_held_images_and_is_what_is_read(
    learner: Make, batches: Batches
) -> None:
    bic = taught(learner, batches, 6, memory=100)
    x, y = bic.held.columns["x"][: len(bic.held)], bic.held.columns["y"][: len(bic.held)]
    assert bic.readout == "ema-corrected"
    for prefix, name in (("", "live"), ("ema-", "average")):
        plain = bic.scores(x, f"{prefix}head")
        after = bic.scores(x, f"{prefix}corrected")
        assert F.cross_entropy(after, y) < F.cross_entropy(plain, y)
        alpha, beta = bic.bias[name][:, 0]
        torch.testing.assert_close(after, alpha * plain + beta)


def test_new_classes_begin_uncorrected(learner: Make, batches: Batches) -> None:
    bic = taught(learner, batches, 7, memory=100)
    for bias in bic.bias.values():
        assert torch.equal(bias[0, :, 4:], torch.ones(1, 2))
        assert torch.equal(bias[1, :, 4:], torch.zeros(1, 2))


def test_a_task_without_new_classes_still_learns_labels(learner: Make, batches: Batches) -> None:
    bic = taught(learner, batches, 3, weighting="convex")
    bic.begin_task(1)
    batch = batches(1)[0]
    bic.add_classes(batch.y)
    x = batch.x.float() / 255
    wrong = bic.loss(x, 1 - batch.y, torch.ones(1))
    assert wrong != bic.loss(x, batch.y, torch.ones(1))
    bic.end_task(1, batch.x, batch.y)  # and there is nothing to correct


def test_the_state_goes_on_to_the_same_bits_within_a_task(learner: Make, batches: Batches) -> None:
    one, two = taught(learner, batches, 7, memory=60), learner("bic", memory=60)
    state = {k: v.clone() for k, v in one.state_dict().items()}
    two.load_state_dict(state)
    for purpose, generator in one.generators.items():
        two.generators[purpose].set_state(generator.get_state())
    last = batches(9)[8]
    for bic in (one, two):
        for batch in batches(9)[7:]:
            bic.learn(replace(batch, epoch=1, epochs=2))
        bic.end_task(2, last.x, last.y)
    ours, theirs = one.state_dict(), two.state_dict()
    assert set(ours) == set(theirs)
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)


def test_a_state_that_does_not_fit_is_refused(learner: Make, batches: Batches) -> None:
    bic = taught(learner, batches, 7)
    state = {k: v.clone() for k, v in bic.state_dict().items()}
    with pytest.raises(ValueError, match="one pair for each of 6 classes"):
        learner("bic").load_state_dict(state | {"bias.live": torch.zeros(2, 1, 4)})
    with pytest.raises(KeyError):
        learner("bic").load_state_dict({k: v for k, v in state.items() if k != "bias.average"})
    y = state["held.column.y"]
    with pytest.raises(ValueError, match="class ids that do not exist"):
        learner("bic").load_state_dict(state | {"held.column.y": y + 9})


def test_bytes_of_teacher_pairs_and_held_images_count(learner: Make, batches: Batches) -> None:
    bic = taught(learner, batches, 3, memory=60, ema=0.0)
    before = bic.nbytes - bic.memory.nbytes
    assert before == 6 * (16 + 8) + 2 * 2 * 4  # held images with labels, and two pairs
    bic.begin_task(1)
    weights = sum(p.numel() for p in bic.model.parameters())
    assert bic.nbytes - bic.memory.nbytes == before + 4 * weights


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory": 1}, "memory is 1; give 2 or more"),
        ({"memory": None}, "bic cannot do without a memory"),
        ({"held": 0.0}, "held is 0.0"),
        ({"held": 1.0}, "held is 1.0"),
        ({"temperature": 0.0}, "temperature is 0.0"),
    ],
)
def test_settings_that_cannot_be(learner: Make, changes: dict, said: str) -> None:
    with pytest.raises(OcilError, match=said):
        learner("bic", **changes)
