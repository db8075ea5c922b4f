"""GeoDL: its step, imprinted and frozen class vectors, and the herded memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ocil import checks
from ocil.learners.geodl import Geodl, geodesic_distillation
from ocil.learners.learner import Learner
from ocil.memory import exemplars
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


def end(learner: Learner, task: int, of: list[Batch]) -> None:
    learner.end_task(task, torch.cat([b.x for b in of]), torch.cat([b.y for b in of]))


def after_one_task(learner: Make, batches: Batches, **changes: Any) -> tuple[Any, list[Batch]]:
    """A learner that has finished task 0 and begun task 1, and the batches of task 1."""
    geodl, stream = learner("geodl", **changes), batches(9)
    geodl.begin_task(0)
    for batch in stream[:3]:
        geodl.learn(batch)
    end(geodl, 0, stream[:3])
    geodl.begin_task(1)
    return geodl, stream[3:]


@pytest.mark.parametrize("form", ["cosine", "difference"])
def test_a_step_is_entropy_and_distillation(learner: Make, batches: Batches, form: str) -> None:
    geodl, stream = after_one_task(learner, batches, memory=6, form=form, distill=3.0, subspace=2)
    geodl.learn(stream[0])
    x = torch.cat([geodl.memory.columns["x"], stream[1].x]).float().div(255)
    y = torch.cat([geodl.memory.columns["y"], stream[1].y])
    with torch.no_grad():
        z, past = geodl.model.net(x), geodl.teacher.net(x)
        w, scale = geodl.model.head.weight, geodl.model.head.scale
        logits = scale * torch.stack([F.cosine_similarity(z, row[None]) for row in w], 1)
        entropy = -logits.log_softmax(1)[torch.arange(11), y].mean()
        kept = geodesic_distillation(z, past, 2, form)
    report = geodl.learn(stream[1])
    torch.testing.assert_close(report["distillation"], kept)
    # two old classes and two new ones
    torch.testing.assert_close(report["loss"], entropy + 3.0 * math.sqrt(2 / 2) * kept)


def test_distillation_grows_with_the_share_of_old_classes(learner: Make) -> None:
    geodl: Any = learner("geodl", distill=4.0)
    geodl.add_classes(torch.tensor([9]))
    assert geodl.strength(8) == pytest.approx(4 * math.sqrt(8 / 2))
    assert geodl.strength(10) == pytest.approx(4 * math.sqrt(10))  # no new class, yet finite


def test_the_first_task_has_no_teacher(learner: Make, batches: Batches) -> None:
    geodl = learner("geodl")
    geodl.begin_task(0)
    for batch in batches(3):
        assert set(geodl.learn(batch)) == {"loss"}
    assert geodl.teacher is None
    assert geodl.backbone_images == 15


def test_images_through_the_net_are_counted(learner: Make, batches: Batches) -> None:
    geodl, stream = after_one_task(learner, batches, memory=6, imprint=True)
    assert geodl.backbone_images == 15 + 15  # the task, and herding at its end
    geodl.learn(stream[0])
    assert geodl.backbone_images == 30 + 5 + 2 * 11  # imprinting, then model and teacher
    geodl.learn(stream[1])
    assert geodl.backbone_images == 30 + 5 + 2 * 2 * 11


def test_new_classes_start_as_the_mean_direction(learner: Make, batches: Batches) -> None:
    geodl, stream = after_one_task(learner, batches)
    batch = stream[0]
    geodl.add_classes(batch.y)
    z = F.normalize(geodl.encode(geodl.model, batch.x), dim=1)
    old = geodl.model.head.weight[:2].detach().clone()
    geodl.imprint(batch, 2)
    for model in (geodl.model, geodl.average.model):
        for c in (2, 3):
            mean = z[batch.y == c].mean(0)
            wanted = mean / mean.norm() * (old[0].norm() + old[1].norm()) / 2
            torch.testing.assert_close(model.head.weight[c].detach(), wanted)
    assert torch.equal(geodl.model.head.weight[:2], old)


def test_classes_are_imprinted_once_and_not_in_the_first_task(
    learner: Make, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(Geodl, "imprint", lambda self, batch, known: calls.append(known))
    geodl, stream = after_one_task(learner, batches, imprint=True)
    for batch in stream[:3]:
        geodl.learn(batch)
    assert calls == [2]


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
@pytest.mark.parametrize("frozen", [True, False])
def test_old_class_vectors_stay_when_frozen(
    learner: Make, batches: Batches, frozen: bool, optimizer: str
) -> None:
    changes = {"optimizer": optimizer, "weight_decay": 0.1, "memory": 6, "ema": 0.5}
    geodl, stream = after_one_task(learner, batches, freeze_old=frozen, **changes)
    before = geodl.model.head.weight.detach().clone()
    averaged = geodl.average.model.head.weight.detach().clone()
    for batch in stream[:3]:
        geodl.learn(batch)
    after = geodl.model.head.weight.detach()
    assert torch.equal(after[:2], before) == frozen
    if frozen:  # the average only closes in on them: a straight line, which no row leaves
        gap, now = before - averaged, before - geodl.average.model.head.weight[:2]
        shrunk = now.norm(dim=1) / gap.norm(dim=1)
        torch.testing.assert_close(now, gap * shrunk[:, None], rtol=1e-3, atol=1e-6)


def test_only_the_model_learns(learner: Make, batches: Batches) -> None:
    geodl, stream = after_one_task(learner, batches)
    teacher = copy.deepcopy(geodl.teacher.state_dict())
    geodl.learn(stream[0])
    assert all(torch.equal(v, teacher[k]) for k, v in geodl.teacher.state_dict().items())
    assert all(p.grad is None for p in geodl.teacher.parameters())
    assert all(p.grad is not None for p in geodl.model.parameters())


def test_distillation_holds_the_features(learner: Make, batches: Batches) -> None:
    moved = []
    for weight in (0.0, 100.0):
        geodl, stream = after_one_task(learner, batches, distill=weight, width=40)
        for batch in stream[:3] * 5:
            geodl.learn(batch)
        x = torch.cat([b.x for b in stream[:3]])
        z, past = geodl.encode(geodl.model, x), geodl.encode(geodl.teacher, x)
        moved.append(float((1 - F.cosine_similarity(z, past)).mean().detach()))
    assert moved[1] < 0.5 * moved[0]


def test_herding_chooses_and_old_classes_give_up_those_chosen_last(
    learner: Make, batches: Batches
) -> None:
    geodl, stream = after_one_task(learner, batches, memory=8)
    first = torch.cat([b.x for b in batches(3)])
    y = torch.cat([b.y for b in batches(3)])
    z = F.normalize(geodl.encode(geodl.model, first), dim=1)  # as at the end of task 0
    ranked = [first[y == c][exemplars.herding(z[y == c], 4)] for c in (0, 1)]
    assert kept(geodl, 0) == {image(v) for v in ranked[0]}
    for task in (1, 2):
        own = stream[3 * task - 3 : 3 * task]
        if task == 2:
            geodl.begin_task(2)
        for batch in own:
            geodl.learn(batch)
        end(geodl, task, own)
        share = 8 // (2 * task + 2)
        if task == 1:
            for c in (0, 1):
                assert kept(geodl, c) == {image(v) for v in ranked[c][:share]}
    # 8 slots for 6 classes: one or two images each, always the first chosen
    assert sorted(set(geodl.memory.labels)) == [0, 1, 2, 3, 4, 5]
    for c in (0, 1):
        assert image(ranked[c][0]) in kept(geodl, c)


def test_the_rank_decides_who_stays_and_not_the_slot(learner: Make, batches: Batches) -> None:
    geodl, stream = after_one_task(learner, batches, memory=8)
    own = geodl.memory.members[0]
    geodl.memory.columns["rank"][own] = torch.arange(len(own)).flip(0)
    last = {image(geodl.memory.columns["x"][slot]) for slot in own[2:]}
    geodl.learn(stream[0])
    end(geodl, 1, stream[:3])
    assert kept(geodl, 0) == last


def image(x: torch.Tensor) -> tuple[int, ...]:
    return tuple(x.flatten().tolist())


def kept(geodl: Any, c: int) -> set[tuple[int, ...]]:
    return {image(geodl.memory.columns["x"][slot]) for slot in geodl.memory.members[c]}


def test_a_resnet_distils_its_last_map_in_quarters(learner: Make) -> None:
    geodl: Any = learner("geodl", (1, 32, 32), net="resnet18", width=2)
    geodl.model.eval()
    x = torch.rand(3, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    features, z = geodl.describe(geodl.model, x)
    torch.testing.assert_close(features, geodl.model.net(x))
    last = geodl.model.net.forward_maps(x)[-1]  # (3, 16, 4, 4)
    quarters = torch.stack(
        [last[:, :, i : i + 2, j : j + 2].mean((2, 3)) for i in (0, 2) for j in (0, 2)], 2
    )
    torch.testing.assert_close(z, quarters.flatten(1))


def test_going_on_in_the_middle_of_a_task_gives_the_same_bits(
    learner: Make, batches: Batches
) -> None:
    first, stream = after_one_task(learner, batches, memory=8, freeze_old=True)
    first.learn(stream[0])
    second = learner("geodl", memory=8, freeze_old=True)
    second.load_state_dict({k: v.detach().clone() for k, v in first.state_dict().items()})
    for purpose, generator in first.generators.items():
        second.generators[purpose].set_state(generator.get_state())
    ends = []
    for geodl in (first, second):
        for batch in stream[1:3]:
            geodl.learn(batch)
        end(geodl, 1, stream[:3])
        ends.append(geodl.state_dict())
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(v, ends[1][k]) for k, v in ends[0].items())


def test_the_rate_falls_in_steps_and_starts_anew(learner: Make, batches: Batches) -> None:
    geodl = learner("geodl", schedule="steps", lr=0.1)
    rates = []
    for epoch in (0, 3, 4, 5, 6, 7, 0):
        batch = batches(1)[0]
        geodl.learn(Batch(batch.x, batch.y, epoch=epoch, epochs=8))
        rates.append(geodl.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001, 0.1])


def test_the_reference_runs() -> None:
    session = checks.make(Geodl, **(Geodl.presets["reference"] | {"epochs": 1}))
    checks.feed(session, checks.TWO_TASKS)
    assert session.learner.readout == "head"
    for name in session.learner.readouts():
        assert session.learner.scores(checks.images([0, 1]), name).isfinite().all()


def test_lambda_counts_all_classes_of_the_task_from_its_first_batch(
    learner: Make, batches: Batches
) -> None:
    """lambda sqrt(old / new) with the new classes of the task, as the authors' code has it."""
    wanted = {"seen": 4 * math.sqrt(8 / 2), "task": 4 * math.sqrt(8 / 5)}
    for adaptive, strength in wanted.items():
        geodl: Any = learner("geodl", distill=4.0, classes_per_task=5, adaptive=adaptive)
        geodl.add_classes(torch.tensor([9]))  # two of the five classes have come
        assert geodl.strength(8) == pytest.approx(strength)


@pytest.mark.parametrize("method", ["geodl", "bic", "bic-ac"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_task_begins_with_a_new_optimiser_or_goes_on_with_the_old(
    learner: Make, batches: Batches, method: str, optimizer: str
) -> None:
    stream, ends = batches(4), []
    for renew in (True, False):
        more = {"optimizer": optimizer, "ema": 0.0, "momentum": 0.9}
        made = learner(method, renew=renew, **more)
        made.begin_task(0)
        for batch in stream[:3]:
            made.learn(batch)
        end(made, 0, stream[:3])
        assert made.optimizer.state
        made.begin_task(1)
        assert bool(made.optimizer.state) != renew
        before = copy.deepcopy(made.model)
        made.learn(stream[3])
        ends.append(made.model.net.state_dict())
        if renew and optimizer == "sgd":  # without momentum of before: no further than one step
            for name, weight in made.model.net.named_parameters():
                gap = dict(before.net.named_parameters())[name] - weight
                decayed = weight.grad + 1e-4 * dict(before.net.named_parameters())[name]
                torch.testing.assert_close(gap, 0.01 * decayed, rtol=1e-3, atol=1e-6)
    assert not all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
