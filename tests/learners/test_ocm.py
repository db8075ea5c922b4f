"""OCM: its loss written out, what the snapshot does, and what a step costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ocil import checks
from ocil.errors import OcilError
from ocil.learners import holistic
from ocil.learners.ocm import Ocm
from ocil.learners.replay import as_float
from ocil.session import Session

EPS = 1e-8


def taught(batches: int = 2, tasks: int = 1, n: int = 6, **changes: Any) -> Session:
    """A session that has finished some tasks of two classes, in batches of n."""
    session = checks.make(Ocm, **({"memory": 40, "replay": 8} | changes))
    checks.feed(session, [(2 * t, 2 * t + 1) for t in range(tasks)], batches=batches, n=n)
    return session


def more(session: Session, labels: list[int], seed: int = 77) -> dict[str, torch.Tensor]:
    return session.learn(checks.images(labels, seed=seed), labels, task=9)


def mean_terms(s: torch.Tensor, labels: list[Any], *, keep_self: bool) -> torch.Tensor:
    """l_ij of all pairs, averaged over the positives of every row: (n,)."""
    e = torch.exp(s - s.max(1, keepdim=True).values)
    if not keep_self:
        e = e * (1 - torch.eye(len(s)))
    terms = -torch.log(e / (e.sum(1, keepdim=True) + EPS) + EPS)
    rows = []
    for i, label in enumerate(labels):
        rows.append(terms[i, [j for j, other in enumerate(labels) if other == label]].mean())
    return torch.stack(rows)


def embedded(model: Any, images: torch.Tensor) -> torch.Tensor:
    """What both similarities need, for a projection as wide as the features: z and z + F."""
    h = model.net(images)
    z = F.normalize(model.projection.layers(h), dim=1)
    return torch.stack([z, z + F.normalize(h, dim=1)])


def by_hand(model: Any, x: torch.Tensor, y: list[int], c: float, tau: float) -> dict[str, Any]:
    """Images in the order turn, view, image, without augmentation; S and the labels."""
    turned = holistic.turns(x.float() / 255)
    both = torch.cat([torch.cat([turned[t], turned[t]]) for t in range(16)])
    z, mixed = embedded(model, both)
    labels = [(t, label) for t in range(16) for label in y * 2]
    return {"s": c * z @ mixed.T / tau, "labels": labels, "z": z}


def paired(s: torch.Tensor, labels: list[Any], n: int) -> torch.Tensor:
    e = torch.exp(s - s.max(1, keepdim=True).values) * (1 - torch.eye(len(s)))
    terms = -torch.log(e / (e.sum(1, keepdim=True) + EPS) + EPS)
    pair = [2 * n * (i // (2 * n)) + (i + n) % (2 * n) for i in range(len(s))]
    alone = torch.stack([terms[i, j] for i, j in enumerate(pair)]).mean()
    return alone + 2 * mean_terms(s, labels, keep_self=False).mean()


def test_the_loss_of_the_first_task_written_out() -> None:
    session = taught(tasks=0, similarity_first=0.7, tau=0.2)
    session.learner.add_classes(torch.tensor([0, 1]))
    model, y = session.learner.model, [0, 1, 1]
    x = checks.images(y, seed=77)
    with torch.no_grad():
        parts = by_hand(model, x, y, 0.7, 0.2)
        stream = paired(parts["s"], parts["labels"], 3)
        entropy = F.cross_entropy(model(x.float() / 255), torch.tensor(y))
    report = more(session, y)
    torch.testing.assert_close(report["stream"], stream)
    torch.testing.assert_close(report["entropy"], entropy)
    torch.testing.assert_close(report["loss"], stream + entropy)


def test_the_loss_of_a_later_task_written_out() -> None:
    session = taught(batches=1, similarity=0.6, similarity_first=0.9, tau=0.2, distill=0.5)
    learner = session.learner
    more(session, [0, 1, 0])  # the weights move on from the snapshot
    assert learner.memory is not None and len(learner.memory) == 9
    session.learner.add_classes(torch.tensor([2]))
    learner.settings.__dict__["replay"] = 64  # all nine are replayed, in order
    model, teacher, y = learner.model, learner.teacher, [2, 0, 2]
    held, y_m = learner.memory.columns["x"][:9], learner.memory.labels
    x = checks.images(y, seed=77)
    with torch.no_grad():
        new = by_hand(model, x, y, 0.6, 0.2)
        old = by_hand(model, held, y_m, 0.6, 0.2)
        plain = [i for i in range(16 * 18) if i % 18 < 9]
        then = by_hand(teacher, held, y_m, 1.0, 0.2)["z"][plain]
        to_old = old["z"][plain] @ then.T / 0.2
        labels = [old["labels"][i] for i in plain]
        logits, target = model(held.float() / 255), teacher(held.float() / 255)
        wanted = {
            "stream": paired(new["s"], new["labels"], 3),
            "memory": mean_terms(old["s"], old["labels"], keep_self=True).mean(),
            "snapshot": mean_terms(to_old, labels, keep_self=True).mean(),
            "entropy": F.cross_entropy(logits, torch.tensor(y_m)),
            "distill": 0.5 * (logits[:, :2] - target).square().mean(),
        }
        assert target.shape == (9, 2) and logits.shape == (9, 3)
    report = more(session, y)
    assert report.keys() == wanted.keys() | {"loss"}
    for name, value in wanted.items():
        torch.testing.assert_close(report[name], value, msg=name)
    torch.testing.assert_close(report["loss"], torch.stack(list(wanted.values())).sum())


def test_what_is_compared_with_the_snapshot_is_not_augmented() -> None:
    session = taught(batches=1, tau=0.2)
    learner = session.learner
    more(session, [0, 1, 0])
    learner.settings.__dict__["replay"] = 64  # all nine are replayed, in order
    learner.augmented = lambda x: 1 - as_float(x)  # a view that can be told from its image
    model, teacher, memory = learner.model, learner.teacher, learner.memory
    assert teacher is not None and memory is not None
    held, y_m = memory.columns["x"][:9].float() / 255, memory.labels
    with torch.no_grad():
        turned = holistic.turns(held).flatten(0, 1)
        s = embedded(model, turned)[0] @ embedded(teacher, turned)[0].T / 0.2
        labels = [(t, label) for t in range(16) for label in y_m]
        wanted = {
            "snapshot": mean_terms(s, labels, keep_self=True).mean(),
            "entropy": F.cross_entropy(model(1 - held), torch.tensor(y_m)),
        }
    report = more(session, [0, 1, 0])
    for name, value in wanted.items():
        torch.testing.assert_close(report[name], value, msg=name)


@pytest.mark.parametrize(("distill", "recalled"), [(1.0, 17), (0.0, 16)])
def test_images_through_the_backbone(distill: float, recalled: int) -> None:
    session = taught(tasks=0, distill=distill)
    learner = session.learner
    for _ in range(3):
        before = learner.backbone_images
        more(session, [0, 1, 0, 1, 0])
        assert learner.backbone_images - before == 32 * 5 + 5  # nothing is replayed
    learner.end_task(0, torch.empty(0), torch.empty(0))
    before = learner.backbone_images
    more(session, [0, 1, 0, 1, 0])
    assert learner.backbone_images - before == 32 * 5 + 32 * 8 + 8 + recalled * 8


def test_replay_is_capped_by_the_classes_seen() -> None:
    session = taught(batches=10, memory=60, replay=64, distill=0.0)
    for labels, replayed in (([0, 1], 14), ([2, 3], 28), ([4, 4], 35)):
        before = session.learner.backbone_images
        more(session, labels)
        passed = session.learner.backbone_images - before
        assert passed == 32 * 2 + (32 + 1 + 16) * replayed


def test_after_the_first_task_the_head_learns_from_replay_alone() -> None:
    session = taught(batches=2)
    learner = session.learner
    seen: list[int] = []
    learner.logits = lambda x: seen.append(len(x)) or Ocm.logits(learner, x)  # type: ignore
    more(session, [0, 1, 0, 1, 0])
    assert seen == [8]


def test_the_snapshot_is_of_the_tasks_end_and_never_learns() -> None:
    session = taught(batches=2)
    learner = session.learner
    now = {k: v.clone() for k, v in learner.model.state_dict().items()}
    for labels in ([2, 3, 2], [3, 2, 2]):
        more(session, labels)
    assert learner.teacher is not None
    then = learner.teacher.state_dict()
    assert all(torch.equal(then[k], v) for k, v in now.items())
    assert learner.teacher.head.classes == 2 and learner.model.head.classes == 4
    assert not torch.equal(
        learner.model.state_dict()["net.hidden1.weight"], now["net.hidden1.weight"]
    )
    learner.end_task(1, torch.empty(0), torch.empty(0))
    assert learner.teacher.head.classes == 4


def test_the_snapshot_normalises_by_the_batch_as_the_reference_does() -> None:
    session = taught(batches=1, n=2, net="resnet18", width=2)
    teacher = session.learner.teacher
    assert teacher is not None
    passes = int(teacher.net.norm.num_batches_tracked)  # type: ignore[union-attr]
    more(session, [2, 3])
    # counted in train mode only: one pass for the turns, one for the logits
    assert int(teacher.net.norm.num_batches_tracked) == passes + 2  # type: ignore[union-attr]


def test_a_resumed_run_with_batch_norm_goes_on_to_the_same_bits() -> None:
    first = taught(batches=1, n=2, net="resnet18", width=2, replay=2)
    more(first, [2, 0])
    state = first.state()
    second = checks.make(Ocm, memory=40, net="resnet18", width=2, replay=2)
    tensors = {k: v.detach().clone() for k, v in state.tensors.items()}
    second.load(type(state)(tensors, dict(state.scalars)))
    for session in (first, second):
        more(session, [2, 3], seed=5)
    assert first.state().sha256() == second.state().sha256()


def test_the_slice_of_the_features_is_drawn_for_every_matrix(monkeypatch: Any) -> None:
    starts: list[int] = []
    original = holistic.holistic_scores

    def spy(z: torch.Tensor, f: torch.Tensor, start: int, scale: float) -> torch.Tensor:
        assert z.shape[1] == 4 and f.shape[1] == 6
        starts.append(start)
        return original(z, f, start, scale)

    session = taught(batches=1, width=6, projection=4)
    monkeypatch.setattr(holistic, "holistic_scores", spy)
    for seed in range(12):
        more(session, [0, 1], seed)
    assert len(starts) == 24  # stream and memory
    assert set(starts) == {0, 1, 2}
    assert any(a != b for a, b in zip(starts[::2], starts[1::2], strict=True))


def test_bytes_of_the_snapshot_are_counted() -> None:
    session = taught(tasks=0, ema=0.0)
    more(session, [0, 1])
    assert session.learner.nbytes == session.learner.memory.nbytes
    session.learner.end_task(0, torch.empty(0), torch.empty(0))
    size = sum(p.numel() * 4 for p in session.learner.model.parameters())
    assert session.learner.nbytes == size + session.learner.memory.nbytes


def test_betas_and_refusals() -> None:
    assert checks.make(Ocm).learner.optimizer.param_groups[0]["betas"] == (0.9, 0.99)
    with pytest.raises(OcilError, match="needs square ones"):
        Session(Ocm, checks.small_settings(Ocm), (1, 8, 6))
    with pytest.raises(OcilError, match="tau is 0"):
        checks.small_settings(Ocm, tau=0.0)
    with pytest.raises(OcilError, match="beta2 is 1"):
        checks.small_settings(Ocm, beta2=1.0)


def test_the_slice_of_the_features_is_of_the_learners_own_draws() -> None:
    ocm = checks.make(Ocm, tau=0.1).learner
    draw = torch.Generator().manual_seed(1)
    z, f = torch.randn(3, 4, generator=draw), torch.randn(3, 40, generator=draw)
    found = []
    for seed in range(5):
        torch.manual_seed(seed)
        ocm.generators["method"].manual_seed(7)
        found.append(ocm.compare(z, f, 1.0))
    assert all(torch.equal(each, found[0]) for each in found)
