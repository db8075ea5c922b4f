"""OTC with mixtures by batch EM at chosen moments, and with several epochs a task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import ocil
from ocil import checks
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.otc import Otc
from ocil.learners.otc_settings import OtcSettings
from ocil.mixture.mixtures import Mixtures, Objective
from ocil.mixture.refit import EmSettings, Refit
from ocil.session import Session
from ocil.settings import setting
from ocil.stream import Batch

PARAMETERS = ("mu", "var", "log_pi")
THREE_TASKS = (*checks.TWO_TASKS, (4, 5))


@dataclass(frozen=True)
class TaskSettings(OtcSettings):
    objective: Objective = "task-em"


@dataclass(frozen=True)
class RefitSettings(OtcSettings):
    objective: Objective = "refit-em"
    em: EmSettings = setting(EmSettings(every=7))


@dataclass(frozen=True)
class RefreshSettings(OtcSettings):
    refresh: bool = True


def variant(settings: type[OtcSettings]) -> type[Otc]:
    return type(settings.__name__, (Otc,), {"settings_type": settings})


@pytest.mark.parametrize("settings", [TaskSettings, RefitSettings, RefreshSettings])
@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_the_contract_holds(settings: type[OtcSettings], check: Any) -> None:
    check(variant(settings))


def fitted(mixtures: Mixtures) -> list[int]:
    assert isinstance(mixtures.mover, Refit)
    return mixtures.mover.fitted.tolist()


def parameters(session: Session, classes: list[int]) -> dict[str, torch.Tensor]:
    store = session.learner.mixtures.store
    return {name: store[name][classes].clone() for name in PARAMETERS}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in PARAMETERS)


def test_by_default_it_is_told_of_no_task():
    assert not checks.make(Otc).learner.needs_tasks
    assert checks.make(Otc, objective="task-em").learner.needs_tasks
    assert not checks.make(Otc, objective="refit-em").learner.needs_tasks
    assert checks.make(Otc, refresh=True).learner.needs_tasks


def test_fitted_by_task_a_class_is_fixed_bit_for_bit():
    session = checks.make(Otc, objective="task-em")
    checks.feed(session, THREE_TASKS[:1], batches=10)
    mixtures, first = session.learner.mixtures, parameters(session, [0, 1])
    assert fitted(mixtures) == [1, 1] and bool(mixtures.active.all())
    weights = [w.clone() for w in session.learner.model.parameters()]
    checks.feed(session, THREE_TASKS[1:], batches=10)
    assert same(parameters(session, [0, 1]), first)
    assert fitted(mixtures) == [1] * 6
    live = list(session.learner.model.parameters())
    assert not torch.equal(live[0], weights[0])  # the features have moved on


def test_the_fit_of_a_task_is_to_all_its_images():
    session = checks.make(Otc, objective="task-em", memory=5)
    learner = session.learner
    checks.feed(session, ((0, 1),), batches=10)
    seen = [(b + i) % 2 for b in range(10) for i in range(6)]
    z = F.normalize(learner.encode(learner.latent, checks.images(seen, seed=0)), dim=1)
    for c in (0, 1):  # EM's weighted mean of the means is the mean of the points
        pi = learner.mixtures.log_pi[c].exp() * (30 + 4 * 0.5) - 0.5
        mean = (pi.unsqueeze(1) * learner.mixtures.mu[c]).sum(0) / 30
        assert torch.allclose(mean, z[torch.tensor(seen) == c].mean(0), atol=1e-4)


def test_a_refit_comes_every_n_steps_and_nothing_moves_between():
    session = checks.make(Otc, objective="refit-em", **{"em.every": 4})
    learner, moved = session.learner, []
    for b in range(12):
        labels = [0, 1, 0, 1, 0, 1]
        before = session.learner.mixtures.store.size and parameters(session, [0, 1])
        session.learn(checks.images(labels, seed=b), labels)
        moved.append(not before or not same(before, parameters(session, [0, 1])))
    # the stand-in follows until the first fit
    assert moved == [True] * 4 + [False] * 3 + [True] + [False] * 3 + [True]
    assert fitted(learner.mixtures) == [3, 3]
    before = learner.backbone_images
    for b in range(4):  # the memory goes through the net once in four steps
        session.learn(checks.images(labels, seed=b), labels)
    assert learner.backbone_images - before == 4 * 2 * 26 + 20


def test_a_refit_is_to_the_memory_through_the_averaged_net():
    session = checks.make(Otc, objective="refit-em", **{"em.every": 20, "start.points": 64})
    checks.feed(session, ((0, 1),), batches=20)
    learner = session.learner
    kept = learner.memory.read(range(len(learner.memory)))
    z = F.normalize(learner.encode(learner.average.model, kept["x"]), dim=1)
    for c in (0, 1):  # fewer points than seed_points: one Gaussian
        own = z[kept["y"] == c]
        assert torch.allclose(learner.mixtures.mu[c, 0], own.mean(0), atol=1e-6)


def test_a_refresh_takes_the_task_and_the_memory_through_the_mixtures_once(monkeypatch):
    session = checks.make(Otc, refresh=True, batch=6, replay=10)
    learner = session.learner
    checks.feed(session, checks.TWO_TASKS, batches=8)
    told, seen, images = [], learner.mixtures.store["count"].clone(), learner.backbone_images
    update = learner.mixtures.update
    monkeypatch.setattr(learner.mixtures, "update", lambda *it: (told.append(it[:2]), update(*it)))
    x, y = checks.images([0] * 9, seed=7), torch.full((9,), 2)
    learner.end_task(1, x, y)
    kept = learner.memory.read([i for i, c in enumerate(learner.memory.labels) if c != 2])
    at_hand, labels = torch.cat([x, kept["x"]]), torch.cat([y, kept["y"]])  # no image twice
    z = F.normalize(learner.encode(learner.average.model, at_hand), dim=1)
    found = torch.cat([part for part, _ in told])
    assert [len(part) for part, _ in told[:-1]] == [16] * (len(told) - 1)
    assert torch.equal(torch.sort(found.sum(1)).values, torch.sort(z.sum(1)).values)
    assert torch.equal(learner.mixtures.store["count"] - seen, torch.bincount(labels, minlength=4))
    assert learner.backbone_images - images == len(labels)


def test_a_refresh_brings_the_centroids_to_where_the_features_are():
    """Weights that jump leave the mixtures behind until they are refreshed."""
    session = checks.make(Otc, refresh=True, memory=60)
    learner = session.learner
    checks.feed(session, checks.TWO_TASKS, batches=20)
    with torch.no_grad():
        for weight in learner.average.model.net.parameters():
            weight.copy_(
                weight[torch.randperm(len(weight), generator=torch.Generator().manual_seed(3))]
            )
    x, y = checks.images([0, 2] * 40, seed=7), torch.tensor([2, 3] * 40)
    z = F.normalize(learner.encode(learner.average.model, x), dim=1)
    before = learner.mixtures.own_distances(z, y).amin(1).mean()
    learner.end_task(1, x, y)
    assert learner.mixtures.own_distances(z, y).amin(1).mean() < 0.2 * before


def test_the_learning_rate_falls_with_the_epochs():
    session = checks.make(Otc, schedule="steps", epochs=10)
    x, labels = checks.images([0, 1]), [0, 1]
    rates = []
    for epoch in range(10):
        session.learn(x, labels, epoch=epoch)
        rates.append(session.learner.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([5e-3] * 7 + [5e-4] * 2 + [5e-5])


@pytest.mark.parametrize(("again", "offered"), [(True, 18), (False, 6)])
def test_later_epochs_offer_images_again_if_told_to(again: bool, offered: int):
    session = checks.make(Otc, offer_every_epoch=again, epochs=3)
    labels = [0, 1, 0, 1, 0, 1]
    for epoch in range(3):
        session.learn(checks.images(labels), labels, epoch=epoch)
    assert session.learner.memory.seen == offered
    assert len(session.learner.memory) == offered


@pytest.mark.parametrize(("data", "schedule"), [("cifar10", "constant"), ("cifar100", "steps")])
def test_the_offline_preset_has_the_epochs_and_batches_of_derpp(data: str, schedule: str):
    chosen, name = registry.resolve("otc", {"preset": "offline", "data": data})
    peer, _ = registry.resolve("derpp", {"preset": "reference", "data": data})
    assert name == f"offline/{data}" and chosen["refresh"]
    for key in ("epochs", "batch", "schedule", "augment", "width"):
        assert chosen[key] == peer[key]
    assert chosen["schedule"] == schedule
    assert chosen["replay"] == 2 * peer["replay"]  # which draws twice


def test_what_the_objectives_of_em_are():
    queue = checks.make(Otc, objective="batch-em", **{"em.passes": 9}).learner.mixtures
    assert (queue.mover.passes, queue.mover.horizon, queue.window) == (9, 0.0, 64)
    step = checks.make(Otc, objective="stepwise-em").learner.mixtures
    assert (step.mover.passes, step.mover.stepwise, step.window) == (1, True, 16)


@pytest.mark.parametrize(("net", "points"), [({}, 16), ({"net": "identity", "ema": 0.0}, 64)])
def test_a_class_has_all_components_from_16_points_or_a_queue_on(net: dict, points: int):
    assert checks.make(Otc, **net).learner.mixtures.settings.seed_points == points
    other = checks.make(Otc, **net | {"start.points": 20})
    assert other.learner.mixtures.settings.seed_points == 20


def test_settings_that_contradict_each_other():
    with pytest.raises(OcilError, match="refresh moves all mixtures"):
        OtcSettings(objective="task-em", refresh=True)
    with pytest.raises(OcilError, match=r"em\.every is 0 but must be at least 1"):
        OtcSettings(objective="refit-em", em=EmSettings(every=0))


def test_a_stream_of_ones_own_has_no_tasks_to_fit_at():
    model = ocil.Classifier("otc", memory=20, objective="task-em")
    with pytest.raises(OcilError, match="told where a task ends"):
        model.partial_fit(torch.rand(6, 4).numpy(), [0, 1, 0, 1, 0, 1])


def test_where_nothing_is_trained_the_fits_work_as_well():
    by_memory = {"objective": "refit-em", "em.every": 5}
    for changes in (by_memory, {"objective": "task-em"}, {"refresh": True}):
        session = checks.make(Otc, net="identity", ema=0.0, **changes)
        checks.feed(session, checks.TWO_TASKS, batches=10)
        learner = session.learner
        if "objective" in changes:
            assert all(fitted(learner.mixtures))
        right = learner.scores(checks.images([3, 1, 0, 2], seed=5)).argmax(1)
        assert right.tolist() == [0, 1, 2, 3]


def test_one_batch_is_enough_for_a_fit():
    session = checks.make(Otc, objective="refit-em", **{"em.every": 1})
    session.learner.learn(Batch(checks.images([0]), torch.tensor([0])))
    assert fitted(session.learner.mixtures) == [1]
