"""MOSE: the parts of a step, its loss written out, what each term trains, and the read-outs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from ocil.learners.learner import Learner
from ocil.learners.mose import PER_CLASS, Experts, Mose
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


@pytest.fixture
def mose(learner: Make) -> Callable[..., Mose]:
    def make(**changes: Any) -> Mose:
        made = learner("mose", **({"replay": 14} | changes))
        assert isinstance(made, Mose)
        return made

    return make


def experts(learner: Mose) -> Experts:
    assert isinstance(learner.model, Experts)
    return learner.model


def at(learner: Mose, batches: list[Batch]) -> Batch:
    """Learn all but the last batch, and meet the last one's classes and task."""
    *before, last = batches
    for batch in before:
        learner.learn(batch)
    learner.add_classes(last.y)
    assert last.task is not None
    same = learner.progress.current if last.task == learner.progress.task else []
    learner.progress.task, learner.progress.current = last.task, sorted({*same, *last.y.tolist()})
    return last


# ------------------------------------------------------------------ the parts of a step


def test_the_first_task_has_its_own_images_only(
    mose: Callable[..., Mose], batches: Batches
) -> None:
    mine = mose(memory=100)
    batch = at(mine, batches(3))
    (x, y), (past, _) = mine.divide(batch)
    assert len(y) == 5 + 10 and len(past) == 0  # all ten held
    assert torch.equal(x[:5], batch.x)


def test_later_tasks_replay_older_images_beside_some_of_the_stream(
    mose: Callable[..., Mose], batches: Batches
) -> None:
    mine = mose(memory=100, replay=20)
    batch = at(mine, batches(5))  # the second batch of the second task
    (x, y), (past, y_past) = mine.divide(batch)
    own = 20 // 2 - 5
    assert len(y) == 5 + own and set(y.tolist()) == {2, 3}
    assert torch.equal(x[:5], batch.x)
    fresh = min(20 * 2 // 4, 5)
    assert torch.equal(past[:fresh], batch.x[:fresh])
    assert set(y_past[fresh:].tolist()) == {0, 1}
    assert len(y_past) == fresh + 15  # 15 images of the first task are held, and fit


def test_the_first_batch_of_a_task_has_none_of_its_own_to_replay(
    mose: Callable[..., Mose], batches: Batches
) -> None:
    mine = mose(memory=100)
    batch = at(mine, batches(4))
    (_, y), (_, y_past) = mine.divide(batch)
    assert len(y) == 5
    assert set(y_past[5:].tolist()) == {0, 1}


def test_older_images_are_limited_for_each_class(mose: Callable[..., Mose]) -> None:
    mine = mose(memory=200, replay=100)
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (60, 1, 4, 4), dtype=torch.uint8, generator=draw)
    mine.add_classes(torch.tensor([0, 1]))
    mine.memory.write(range(60), x, torch.zeros(60, dtype=torch.int64))
    mine.memory.seen, mine.progress.current = 60, [1]
    batch = Batch(x[:5], torch.ones(5, dtype=torch.int64), 0, 1)
    _, (_, y_past) = mine.divide(batch)
    assert int((y_past == 0).sum()) == PER_CLASS * 2


def test_a_class_of_the_task_counts_once_it_has_come(
    mose: Callable[..., Mose], batches: Batches
) -> None:
    mine = mose(memory=100)
    first = batches(1)[0]
    mine.learn(Batch(first.x[:3], torch.tensor([0, 0, 0]), 0, 0))
    assert mine.progress.current == [0]
    mine.learn(Batch(first.x, torch.tensor([1, 0, 0, 0, 1]), 1, 0))
    assert mine.progress.current == [0, 1]
    mine.learn(Batch(first.x, torch.tensor([2] * 5), 2, 1))
    assert mine.progress.current == [2] and mine.progress.task == 1


def test_without_task_ids_the_stream_is_one_task(
    mose: Callable[..., Mose], batches: Batches
) -> None:
    mine = mose(memory=100)
    for batch in batches(6):
        mine.learn(Batch(batch.x, batch.y, batch.step))
    assert mine.progress.current == [0, 1, 2, 3]
    _, (past, _) = mine.divide(batches(6)[-1])
    assert len(past) == 0


def test_four_views_of_every_image(mose: Callable[..., Mose], batches: Batches) -> None:
    mine = mose(augment="affine")
    batch = batches(1)[0]
    x, y = mine.views((batch.x, batch.y))
    plain = batch.x.float() / 255
    assert torch.equal(x[:5], plain) and torch.equal(x[5:10], plain.flip(-1))
    assert not torch.equal(x[10:15], plain) and not torch.equal(x[15:], plain.flip(-1))
    assert y.tolist() == batch.y.tolist() * 4
    two, _ = mose(mirror=False).views((batch.x, batch.y))
    assert len(two) == 10


def test_images_through_the_net_are_counted(mose: Callable[..., Mose], batches: Batches) -> None:
    mine = mose(memory=100, replay=20, updates=2)
    *before, batch = batches(5)
    for each in before:
        mine.learn(each)
    count = mine.backbone_images
    mine.learn(batch)
    own, fresh, past = 5, 5, 15
    assert mine.backbone_images - count == 2 * 4 * (5 + own + fresh + past)


def test_the_reference_pushes_384_images_a_step(mose: Callable[..., Mose]) -> None:
    """10 + 22 of the task and 64 of the others, four views each, once the memory is rich."""
    mine = mose(memory=600, replay=64, batch=10, width=4)
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (600, 1, 4, 4), dtype=torch.uint8, generator=draw)
    mine.add_classes(torch.arange(12))
    mine.memory.write(range(600), x, torch.arange(600) % 12)
    mine.memory.seen, mine.progress.task, mine.progress.current = 600, 5, [10, 11]
    mine.learn(Batch(x[:10], torch.tensor([10, 11] * 5), 0, 5))
    assert mine.backbone_images == 384


# ------------------------------------------------------------------ the loss


def by_hand(mine: Mose, new: Any, old: Any) -> torch.Tensor:
    """The sum over experts with plain loops over points."""
    model = experts(mine)
    x, y = torch.cat([new[0], old[0]]), torch.cat([new[1], old[1]])
    n, features = len(new[1]), model.stages(torch.cat([new[0], old[0]]))
    total = torch.zeros(())
    for i, h in enumerate(features):
        z = F.normalize(model.projections[i].layers(h), dim=1)  # type: ignore
        contrast = []
        for a in range(len(x)):
            others = [b for b in range(len(x)) if b != a]
            log_sum = torch.stack([z[a] @ z[b] / 0.07 for b in others]).logsumexp(0)
            same = [z[a] @ z[b] / 0.07 - log_sum for b in others if y[a] == y[b]]
            contrast.append(-torch.stack(same).mean())
        total = total + torch.stack(contrast).mean()
        logits = model.classifiers[i](h)
        local = logits[:n][:, mine.progress.current]
        answers = torch.tensor([mine.progress.current.index(int(c)) for c in y[:n]])
        total = total + F.cross_entropy(local, answers)
        if len(y) > n:
            total = total + 2 * F.cross_entropy(logits[n:], y[n:])
        if i < len(features) - 1:
            student = F.normalize(model.adapt.layers(features[-1]), dim=1)
            total = total + (student - F.normalize(h, dim=1)).square().sum().sqrt()
    return total


@pytest.mark.parametrize("count", [2, 4, 6], ids=["first task", "new task", "later"])
def test_the_loss_is_the_one_written_out(
    mose: Callable[..., Mose], batches: Batches, count: int
) -> None:
    mine = mose(memory=12, replay=8)
    batch = at(mine, batches(count))
    new, old = (mine.views(part) for part in mine.divide(batch))
    torch.testing.assert_close(mine.loss(new, old, {}), by_hand(mine, new, old))


def gradients(mine: Mose) -> dict[str, bool]:
    return {
        name: p.grad is not None and bool(p.grad.abs().sum() > 0)
        for name, p in mine.model.named_parameters()
    }


def test_shallow_teach_deep_and_not_the_reverse(
    mose: Callable[..., Mose], batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ocil import losses

    mine = mose(memory=100)
    batch = at(mine, batches(2))
    nothing = lambda z, *_: 0 * z.sum()  # noqa: E731
    monkeypatch.setattr(losses, "supervised_contrastive", nothing)
    monkeypatch.setattr(losses, "restricted_cross_entropy", nothing)
    new, old = (mine.views(part) for part in mine.divide(batch))
    mine.optimizer.zero_grad()
    mine.loss(new, old, {}).backward()
    reached = gradients(mine)
    assert reached["adapt.layers.0.weight"] and reached["net.hidden2.weight"]
    assert reached["net.hidden1.weight"]  # through the last expert
    assert not any(reached[name] for name in reached if name.startswith(("exits", "early_heads")))
    assert not any(reached[name] for name in reached if name.startswith("projections"))


def test_every_part_is_trained_and_old_columns_are_spared(
    mose: Callable[..., Mose], batches: Batches
) -> None:
    mine = mose(memory=100)
    batch = at(mine, batches(4))
    new, old = (mine.views(part) for part in mine.divide(batch))
    mine.optimizer.zero_grad()
    mine.loss(new, old, {}).backward()
    assert all(gradients(mine).values())
    # without older images only the columns of the task's classes move
    mine.optimizer.zero_grad()
    none = (old[0][:0], old[1][:0])
    mine.loss(new, none, {}).backward()
    for head in mine.model.heads:
        assert head.weight.grad is not None
        assert torch.equal(head.weight.grad[:2], torch.zeros_like(head.weight.grad[:2]))
        assert head.weight.grad[2:].abs().sum() > 0


def test_without_reverse_distillation_its_layer_is_not_trained(
    mose: Callable[..., Mose], batches: Batches
) -> None:
    mine = mose(reverse=0.0)
    batch = at(mine, batches(1))
    new, old = (mine.views(part) for part in mine.divide(batch))
    report: dict[str, torch.Tensor] = {}
    mine.loss(new, old, report).backward()
    assert report == {} and not gradients(mine)["adapt.layers.0.weight"]


# ------------------------------------------------------------------ reading


def test_read_outs_by_hand(mose: Callable[..., Mose], batches: Batches) -> None:
    mine = mose(memory=9, ema=0.0)
    for batch in batches(6):
        mine.learn(batch)
    assert list(mine.readouts()) == ["head", "mean", "moe-head", "moe-mean"]
    assert mine.readout == "mean"
    model, x = experts(mine).eval(), batches(7)[-1].x
    with torch.no_grad():
        stages = model.stages(x.float() / 255)
        held = model.stages(mine.memory.columns["x"].float() / 255)
        logits = torch.stack([g(h) for g, h in zip(model.classifiers, stages, strict=True)])
    torch.testing.assert_close(mine.scores(x, "head"), logits[-1])
    torch.testing.assert_close(mine.scores(x, "moe-head"), logits.mean(0))
    distance = torch.full((2, len(x), 4), torch.inf)
    for e in range(2):
        for c in mine.memory.filled:
            own = [F.normalize(held[e][s], dim=0) for s in mine.memory.members[c]]
            mean = F.normalize(torch.stack(own).mean(0), dim=0)
            distance[e, :, c] = (F.normalize(stages[e], dim=1) - mean).square().sum(1)
    torch.testing.assert_close(mine.scores(x, "mean"), -distance[1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(mine.scores(x, "moe-mean"), -distance.mean(0), atol=1e-5, rtol=1e-4)


def test_averaged_weights_answer_by_default(mose: Callable[..., Mose]) -> None:
    mine = mose()
    assert mine.readout == "ema-mean"
    assert list(mine.readouts())[4:] == ["ema-head", "ema-mean", "ema-moe-head", "ema-moe-mean"]


def test_a_residual_net_has_four_experts(mose: Callable[..., Mose], batches: Batches) -> None:
    mine = mose(net="resnet18", width=2, shape=(1, 8, 8))
    for batch in batches(4, (1, 8, 8)):
        mine.learn(batch)
    assert len(experts(mine).classifiers) == len(mine.model.heads) == 4
    assert {head.classes for head in mine.model.heads} == {4}
    assert mine.scores(batches(1, (1, 8, 8))[0].x).isfinite().any()


def test_the_classes_of_the_task_survive_a_round_trip(
    mose: Callable[..., Mose], batches: Batches
) -> None:
    mine, other = mose(), mose()
    for batch in batches(5):
        mine.learn(batch)
    state = {k: v.clone() for k, v in mine.state_dict().items()}
    other.load_state_dict(state)
    assert (other.progress.task, other.progress.current) == (1, [2, 3])
    with pytest.raises(ValueError, match="classes that do not exist"):
        mose().load_state_dict(state | {"current": torch.tensor([7])})


def test_exits_take_maps_in_16_bits(mose: Callable[..., Mose]) -> None:
    made = mose(shape=(3, 32, 32), net="resnet18", width=2, precision="bfloat16")
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (6, 3, 32, 32), dtype=torch.uint8, generator=draw)
    made.learn(Batch(x, torch.tensor([0, 1, 2, 0, 1, 2])))
    assert made.scores(x).dtype == torch.float32
    assert made.scores(x).isfinite().all()
