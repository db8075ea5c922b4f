"""OnPro: which terms a step has, what is mixed when, and what a step costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ocil import checks
from ocil.errors import OcilError
from ocil.learners import holistic, onpro
from ocil.learners.onpro import Mixed, Onpro
from ocil.memory import feedback
from ocil.session import Session

NOTHING = torch.empty(0)


def fresh(**changes: Any) -> Session:
    return checks.make(Onpro, **({"memory": 40, "replay": 8} | changes))


def more(session: Session, labels: list[int], seed: int = 77) -> dict[str, torch.Tensor]:
    return session.learn(checks.images(labels, seed=seed), labels, task=9)


def taught(**changes: Any) -> Session:
    """Three batches of the classes 0 and 1, then the end of the task."""
    session = fresh(**changes)
    for seed in range(3):
        more(session, [0, 1, 0, 1, 1], seed)
    session.learner.end_task(0, NOTHING, NOTHING)
    return session


def projected(model: Any, x: torch.Tensor) -> torch.Tensor:
    return F.normalize(model.projection.layers(model.net(x)), dim=1)


def test_terms_of_the_first_task() -> None:
    session = fresh()
    assert more(session, [0, 1]).keys() == {"stream", "new", "entropy", "loss"}
    assert more(session, [0, 1]).keys() == {"stream", "new", "seen", "entropy", "loss"}
    learner, y = session.learner, torch.tensor([1, 0, 1])
    x = checks.images(y.tolist(), seed=77).float() / 255
    held = learner.memory.columns["x"][:4].float() / 255  # type: ignore[union-attr]
    y_b = learner.memory.columns["y"][:4]  # type: ignore[union-attr]
    with torch.no_grad():
        z, z_b = projected(learner.model, x), projected(learner.model, held)
        wanted = {
            "new": onpro.prototype_equilibrium(z, z, y, 0.5),
            "seen": onpro.prototype_equilibrium(z_b, z_b, y_b, 0.5),
            "entropy": F.cross_entropy(learner.model(x), y),
        }
    report = more(session, y.tolist())
    for name, value in wanted.items():
        torch.testing.assert_close(report[name], value, msg=name)
    parts = [v for k, v in report.items() if k != "loss"]
    torch.testing.assert_close(report["loss"], torch.stack(parts).sum())


def test_terms_of_a_later_task_without_mixing() -> None:
    session = taught(mixup=0.0, guided=0.0, replay=64, replay_per_class=64, tau=0.3)
    learner = session.learner
    learner.add_classes(torch.tensor([2]))
    y = torch.tensor([2, 0, 2])
    x = checks.images(y.tolist(), seed=77).float() / 255
    held = learner.memory.columns["x"][:15].float() / 255  # type: ignore[union-attr]
    y_b = learner.memory.columns["y"][:15]  # type: ignore[union-attr]
    with torch.no_grad():
        model = learner.model
        z, z_b = projected(model, x), projected(model, held)
        turned = holistic.turns(held).unsqueeze(1).expand(-1, 2, -1, -1, -1, -1).flatten(0, 2)
        h = model.net(turned)
        s = projected(model, turned)
        s = s @ (s + F.normalize(h, dim=1)).T / 0.3
        wanted = {
            "new": onpro.prototype_equilibrium(z, z, y, 0.5),
            "seen": onpro.prototype_equilibrium(z_b, z_b, y_b, 0.5),
            "entropy": F.cross_entropy(model(held), y_b),  # the stream takes no part
            "memory": holistic.infonce(s, y_b.repeat(2)),
        }
    report = more(session, y.tolist())
    assert report.keys() == wanted.keys() | {"stream", "loss"}
    for name, value in wanted.items():
        torch.testing.assert_close(report[name], value, msg=name)


@pytest.mark.parametrize("later", [False, True])
def test_the_stream_is_compared_by_the_factor_of_its_task(later: bool) -> None:
    session = taught(similarity_first=0.7, similarity=0.4, tau=0.3)
    learner, y = session.learner, torch.tensor([1, 0, 1])
    learner.past.finished = later
    x = checks.images(y.tolist(), seed=77).float() / 255
    with torch.no_grad():
        model = learner.model
        turned = holistic.turns(x).unsqueeze(1).expand(-1, 2, -1, -1, -1, -1).flatten(0, 2)
        z = projected(model, turned)
        s = z @ (z + F.normalize(model.net(turned), dim=1)).T / 0.3
        wanted = holistic.paired_infonce((0.4 if later else 0.7) * s, y)
    torch.testing.assert_close(more(session, y.tolist())["stream"], wanted)


def test_one_class_in_the_stream_leaves_its_prototypes_alone() -> None:
    assert float(more(fresh(), [1, 1, 1])["new"]) == pytest.approx(0, abs=1e-6)


def test_images_through_the_backbone() -> None:
    session = fresh()
    learner = session.learner
    for held in (0, 5, 8):  # the replay batch is 8
        before = learner.backbone_images
        more(session, [0, 1, 0, 1, 0])
        assert learner.backbone_images - before == 32 * 5 + 5 + 2 * held
    learner.end_task(0, NOTHING, NOTHING)
    for _ in range(2):
        before = learner.backbone_images
        more(session, [0, 1, 0, 1, 0])
        assert learner.backbone_images - before == 32 * 5 + 32 * 8 + 8 + 2 * 8


def test_replay_is_capped_by_the_classes_seen_after_the_first_task_only() -> None:
    session = fresh(replay=64, memory=60)
    for seed in range(10):
        more(session, [0, 1] * 3, seed)
    before = session.learner.backbone_images
    more(session, [0, 1])
    assert session.learner.backbone_images - before == 33 * 2 + 2 * 60
    session.learner.end_task(0, NOTHING, NOTHING)
    for labels, replayed in (([0, 1], 14), ([2, 3], 28)):
        before = session.learner.backbone_images
        more(session, labels)
        assert session.learner.backbone_images - before == 32 * 2 + 35 * replayed


def test_prototypes_are_those_of_the_replayed_images_and_end_with_the_task() -> None:
    session = fresh(replay=64)
    more(session, [0, 1, 0, 2])
    learner = session.learner
    held, y = learner.memory.columns["x"][:4], learner.memory.columns["y"][:4]  # type: ignore
    with torch.no_grad():
        z = projected(learner.model, held.float() / 255)
    more(session, [1, 1])
    assert torch.equal(learner.past.prototype_classes, y)
    torch.testing.assert_close(learner.past.prototypes, onpro.batch_prototypes(z, y))
    assert not learner.past.prototypes.requires_grad
    bytes_held = learner.nbytes
    learner.end_task(0, NOTHING, NOTHING)
    assert len(learner.past.prototypes) == len(learner.past.prototype_classes) == 0
    assert bytes_held - learner.nbytes == 4 * (16 * 4 + 8)


def test_the_first_batch_of_a_task_is_not_mixed_and_later_ones_are() -> None:
    session = taught(mixup=1.0, guided=0.5)
    learner, seen = session.learner, []
    original = learner.feedback
    learner.feedback = lambda **old: seen.append(original(**old)) or seen[-1]  # type: ignore
    more(session, [2, 3, 2])
    more(session, [2, 3, 2])
    assert not seen[0].share.any()
    assert torch.equal(seen[0].first, seen[0].second)
    assert (seen[1].share > 0).all()
    assert len(seen[1].x) == 8


def test_feedback_mixes_what_it_says() -> None:
    # every image is of one brightness that names its class, so a mix can be read off
    session = taught(mixup=1.0, guided=0.5, replay=12)
    learner, memory = session.learner, session.learner.memory
    learner.add_classes(torch.tensor([3]))
    labels = torch.arange(15) % 4
    memory.write(
        list(range(15)),
        (50 * labels)[:, None, None, None].expand(-1, 1, 8, 8).to(torch.uint8),
        labels,
    )
    learner.past.prototypes = torch.eye(16)[[0, 1, 1, 2]] + torch.tensor([0, 0, 0.01, 0])[:, None]
    learner.past.prototype_classes = torch.tensor([0, 3, 1, 2])
    old = memory.draw(12, learner.generators["memory"])  # type: ignore[union-attr]
    mixed = learner.feedback(**old)
    value = mixed.x * 255 / 50
    wanted = (1 - mixed.share) * mixed.first + mixed.share * mixed.second
    torch.testing.assert_close(value.mean((1, 2, 3)), wanted)
    assert value.std((1, 2, 3)).max() < 1e-5
    guided = list(zip(mixed.first[6:].tolist(), mixed.second[6:].tolist(), strict=True))
    # the two whose prototypes are close, the one that came earlier first
    assert guided.count((1, 3)) >= 5 and all(a < b for a, b in guided)
    randoms = sorted(mixed.first[:6].tolist())
    assert sorted(mixed.second[:6].tolist()) == randoms  # a permutation of themselves
    assert (mixed.share[:6] < 0.6).all()


def test_a_mix_of_two_classes_is_a_class_of_its_own() -> None:
    first, second = torch.tensor([0, 0, 2, 1, 0]), torch.tensor([2, 2, 2, 0, 2])
    share = torch.tensor([0.5, 0.5, 0.5, 0.0, 0.0])
    mixed = Mixed(torch.zeros(5, 1), first, second, share)
    # 0.5 * 0 + 0.5 * 2 is not class 1; one class with itself is that class
    assert mixed.classes(3).tolist() == [3, 4, 2, 1, 0]


def test_with_fewer_than_two_prototypes_all_partners_are_random() -> None:
    session = taught(mixup=1.0, guided=0.5)
    learner = session.learner
    learner.past.prototypes, learner.past.prototype_classes = torch.ones(1, 16), torch.tensor([0])
    mixed = learner.feedback(**learner.memory.draw(8, learner.generators["memory"]))
    assert len(mixed.x) == 8
    assert (mixed.share < 0.6).all()


def test_gradients_reach_head_and_projection() -> None:
    session = taught()
    more(session, [2, 0, 2])
    parameters = dict(session.learner.model.named_parameters())
    for name in ("net.hidden1.weight", "head.weight", "projection.layers.0.weight"):
        assert float(parameters[name].grad.abs().sum()) > 0, name  # type: ignore[union-attr]


def test_a_resumed_run_goes_on_in_the_middle_of_a_task() -> None:
    first = taught(mixup=1.0, guided=0.5)
    more(first, [2, 0, 2])
    state = first.state()
    second = fresh(mixup=1.0, guided=0.5)
    tensors = {k: v.detach().clone() for k, v in state.tensors.items()}
    second.load(type(state)(tensors, dict(state.scalars)))
    assert second.state().sha256() == state.sha256()
    for session in (first, second):
        more(session, [2, 3, 1], seed=5)
    assert first.state().sha256() == second.state().sha256()
    for name, bad in (
        ("prototypes", tensors["learner.prototypes"][:, :3]),
        ("prototype_classes", tensors["learner.prototype_classes"] + 3),
        ("prototype_classes", tensors["learner.prototype_classes"].float()),
    ):
        with pytest.raises(OcilError, match="prototype"):
            fresh().load(type(state)(tensors | {f"learner.{name}": bad}, dict(state.scalars)))


def test_settings_out_of_range() -> None:
    for name, bad in (("guided", 1.5), ("mixup", -0.1), ("tau", -1.0)):
        with pytest.raises(OcilError, match=f"Setting {name} is"):
            checks.small_settings(Onpro, **{name: bad})


def test_the_chooser_sees_one_prototype_for_each_class(monkeypatch: pytest.MonkeyPatch) -> None:
    session, seen = taught(guided=0.5), []
    original = feedback.close_pairs
    monkeypatch.setattr(
        feedback, "close_pairs", lambda p, n, g: seen.append((len(p), n)) or original(p, n, g)
    )
    more(session, [0, 1])
    more(session, [0, 1])
    assert seen == [(2, 4)]
