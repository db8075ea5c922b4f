"""Co2L: its two losses in one step, the classifier at a task's end, and what the memory keeps."""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ocil import checks
from ocil.errors import OcilError
from ocil.learners.co2l import Co2l, Co2lSettings
from ocil.learners.learner import Learner
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


def end(learner: Learner, task: int, of: list[Batch]) -> None:
    learner.end_task(task, torch.cat([b.x for b in of]), torch.cat([b.y for b in of]))


def after_one_task(learner: Make, batches: Batches, **changes: Any) -> tuple[Any, list[Batch]]:
    """A learner that has finished task 0 and begun task 1, and the batches of task 1."""
    co2l, stream = learner("co2l", linear_epochs=2, **changes), batches(6)
    co2l.begin_task(0)
    for batch in stream[:3]:
        co2l.learn(batch)
    end(co2l, 0, stream[:3])
    co2l.begin_task(1)
    return co2l, stream[3:]


def softmax(scores: dict[int, float]) -> dict[int, float]:
    total = sum(math.exp(v) for v in scores.values())
    return {j: math.exp(v) / total for j, v in scores.items()}


def test_a_step_is_both_losses_written_out(learner: Make, batches: Batches) -> None:
    co2l, (batch, second, _) = after_one_task(learner, batches, memory=6, kappa_past=0.1)
    co2l.learn(batch)  # now the teacher differs from the model
    with torch.no_grad():
        x = torch.cat([co2l.memory.columns["x"], second.x]).float().div(255)
        x = torch.cat([x, x])
        u, past = (m.embed(x).double() for m in (co2l.model, co2l.teacher))
    y = torch.cat([co2l.memory.columns["y"], second.y]).repeat(2).tolist()
    contrast = relations = 0.0
    for i in range(22):
        others = [j for j in range(22) if j != i]
        if i % 11 >= 6:  # the six replayed come first, in both views
            p = softmax({j: float(u[i] @ u[j]) / 0.5 for j in others})
            own = [math.log(p[j]) for j in others if y[j] == y[i]]
            contrast -= sum(own) / len(own) / 22
        now = softmax({j: float(u[i] @ u[j]) / 0.2 for j in others})
        before = softmax({j: float(past[i] @ past[j]) / 0.1 for j in others})
        relations -= sum(before[j] * math.log(now[j]) for j in others) / 22
    report = co2l.learn(second)
    assert float(report["relations"]) == pytest.approx(relations, rel=1e-5)
    expected = 0.5 / 0.07 * contrast + relations
    assert float(report["loss"]) == pytest.approx(expected, rel=1e-5)


def test_the_first_task_has_no_teacher_and_replays_nothing(learner: Make, batches: Batches) -> None:
    co2l = learner("co2l")
    co2l.begin_task(0)
    for batch in batches(3):
        assert set(co2l.learn(batch)) == {"loss"}
    assert co2l.teacher is None
    assert co2l.memory is not None and not len(co2l.memory)
    assert co2l.backbone_images == 3 * 2 * 5


def test_images_through_the_net_are_counted(learner: Make, batches: Batches) -> None:
    co2l, (batch, *_) = after_one_task(learner, batches, memory=6, linear_views=2)
    # representation, then two views of 15 images under live and averaged weights
    assert co2l.backbone_images == 3 * 2 * 5 + 2 * 2 * 15
    before = co2l.backbone_images
    co2l.learn(batch)
    assert co2l.backbone_images - before == 2 * 2 * (6 + 5)  # two views, model and teacher


def test_learning_moves_neither_head_nor_teacher(learner: Make, batches: Batches) -> None:
    co2l, stream = after_one_task(learner, batches)
    co2l.learn(stream[0])  # the head grows here
    heads = [copy.deepcopy(m.head.state_dict()) for m in (co2l.model, co2l.average.model)]
    assert not torch.equal(heads[0]["weight"], heads[1]["weight"])  # one for each set of weights
    teacher = copy.deepcopy(co2l.teacher.state_dict())
    net = copy.deepcopy(co2l.model.net.state_dict())
    co2l.learn(stream[1])
    for model, head in zip((co2l.model, co2l.average.model), heads, strict=True):
        assert all(torch.equal(v, head[k]) for k, v in model.head.state_dict().items())
    assert all(torch.equal(v, teacher[k]) for k, v in co2l.teacher.state_dict().items())
    assert all(not torch.equal(v, net[k]) for k, v in co2l.model.net.state_dict().items())
    assert all(p.grad is not None for p in co2l.model.project.parameters())


def test_the_teacher_is_the_model_at_the_start_of_the_task(learner: Make, batches: Batches) -> None:
    co2l, stream = after_one_task(learner, batches)
    before = copy.deepcopy(co2l.model.net.state_dict())
    co2l.learn(stream[0])
    assert all(torch.equal(v, before[k]) for k, v in co2l.teacher.net.state_dict().items())


def test_the_memory_changes_at_the_end_of_a_task_only(learner: Make, batches: Batches) -> None:
    co2l, stream = after_one_task(learner, batches, memory=8)
    assert sorted(co2l.memory.labels) == [0] * 4 + [1] * 4
    for batch in stream:
        co2l.learn(batch)
    assert sorted(co2l.memory.labels) == [0] * 4 + [1] * 4
    old = {tuple(v.flatten().tolist()) for v in co2l.memory.columns["x"]}
    end(co2l, 1, stream)
    assert sorted(co2l.memory.labels) == [0, 0, 1, 1, 2, 2, 3, 3]
    for image, label in zip(co2l.memory.columns["x"], co2l.memory.labels, strict=True):
        assert (tuple(image.flatten().tolist()) in old) == (label < 2)


def test_the_classifier_draws_its_classes_equally_often(learner: Make) -> None:
    # All images alike and 27 of 30 of one class: only the draws decide, and they are fair.
    co2l = learner("co2l", linear_epochs=40, linear_lr=0.1)
    x, y = torch.full((30, 1, 4, 4), 90, dtype=torch.uint8), torch.tensor([0] * 27 + [1] * 3)
    co2l.add_classes(y)
    co2l.end_task(0, x, y)
    p = co2l.scores(x[:1], "head").softmax(1)[0, 0]
    assert abs(float(p) - 0.5) < 0.15


def test_the_classifier_is_fitted_from_nothing(learner: Make, batches: Batches) -> None:
    heads = []
    for noise in (0.0, 5.0):
        co2l, stream = after_one_task(learner, batches)
        for batch in stream:
            co2l.learn(batch)
        co2l.model.head.weight.data += noise
        end(co2l, 1, stream)
        heads.append(co2l.model.head.weight.detach().clone())
    assert torch.equal(heads[0], heads[1])


def test_the_classifier_reads_both_sets_of_weights() -> None:
    session = checks.make(Co2l)
    checks.feed(session, checks.TWO_TASKS, batches=20)
    labels = [3, 1, 0, 2] * 5
    ids = torch.tensor(session.labels.encode(labels))
    for name in ("head", "ema-head"):
        answers = session.learner.scores(checks.images(labels, seed=5), name).argmax(1)
        assert float((answers == ids).float().mean()) > 0.7
    assert session.learner.readout == "ema-head"


def test_as_many_views_as_epochs_are_all_different(learner: Make, batches: Batches) -> None:
    for views, distinct in ((1, 1), (2, 2), (4, 4)):
        co2l = learner("co2l", augment="affine", linear_epochs=4, linear_views=views)
        x = batches(1)[0].x
        inputs = [z.clone() for z in co2l.linear_inputs(co2l.model, x)]
        assert len(inputs) == 4
        assert len({tuple(z.flatten().tolist()) for z in inputs}) == distinct
        assert torch.equal(inputs[3], inputs[3 % views])  # they take turns
        assert co2l.backbone_images == 5 * views


def test_a_view_that_is_not_used_again_is_not_held(learner: Make, batches: Batches) -> None:
    for views, held in ((3, True), (4, False)):
        co2l = learner("co2l", linear_epochs=4, linear_views=views)
        inputs = co2l.linear_inputs(co2l.model, batches(1)[0].x)
        first = weakref.ref(next(inputs))
        next(inputs)
        assert (first() is not None) == held


def test_the_rate_of_the_classifier_falls_at_three_shares_of_its_epochs(
    learner: Make, batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    step = torch.optim.SGD.step

    def noted(self: torch.optim.SGD) -> None:
        rates.append(self.param_groups[0]["lr"])
        step(self)

    monkeypatch.setattr(torch.optim.SGD, "step", noted)
    co2l, batch = learner("co2l", linear_epochs=20, linear_lr=1.0), batches(1)[0]
    co2l.add_classes(batch.y)
    co2l.fit_head(co2l.model, batch.x, batch.y)
    assert rates == pytest.approx([1.0] * 12 + [0.2] * 3 + [0.04] * 3 + [0.008] * 2)


@pytest.mark.parametrize("before_end", [True, False])
def test_going_on_from_a_state_gives_the_same_bits(
    learner: Make, batches: Batches, before_end: bool
) -> None:
    """In the middle of a task, and right before its end, which is redone after a kill."""
    first, stream = after_one_task(learner, batches, augment="affine")
    first.learn(stream[0])
    if before_end:
        first.learn(stream[1])
    saved = {k: v.detach().clone() for k, v in first.state_dict().items()}
    generators = {k: g.get_state() for k, g in first.generators.items()}
    ends = []
    second = learner("co2l", augment="affine", linear_epochs=2)
    second.load_state_dict(saved)
    for k, state in generators.items():
        second.generators[k].set_state(state)
    for co2l in (first, second):
        if not before_end:
            co2l.learn(stream[1])
        end(co2l, 1, stream[:2])
        ends.append(co2l.state_dict())
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(v, ends[1][k]) for k, v in ends[0].items())
    assert any(k.startswith("teacher.") for k in saved)


def test_a_teacher_of_other_classes_is_refused(learner: Make, batches: Batches) -> None:
    co2l, _ = after_one_task(learner, batches)
    state = co2l.state_dict()
    for name in ("weight", "bias"):
        state[f"teacher.head.{name}"] = torch.cat([state[f"teacher.head.{name}"]] * 2)
    with pytest.raises(ValueError, match="teacher knows other classes"):
        learner("co2l").load_state_dict(state)


def test_a_teacher_is_counted_among_the_bytes(learner: Make, batches: Batches) -> None:
    co2l, _ = after_one_task(learner, batches, ema=0.0)
    held = sum(v.numel() * v.element_size() for v in co2l.model.state_dict().values())
    assert co2l.nbytes - co2l.memory.nbytes == held


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_teacher_norms_by_its_statistics_or_by_the_batch(learner: Make, mode: str) -> None:
    co2l: Any = learner("co2l", (1, 8, 8), net="resnet18", width=2, teacher_mode=mode)
    co2l.add_classes(torch.tensor([0, 1]))
    co2l.begin_task(1)
    x = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    wanted = copy.deepcopy(co2l.teacher).train(mode == "train").embed(x)
    torch.testing.assert_close(co2l.past(x), wanted)
    apart = torch.cat([co2l.past(part) for part in (x[:2], x[2:])])
    assert torch.allclose(apart, wanted, atol=1e-5) == (mode == "eval")


def test_the_cosine_starts_anew_with_every_task(learner: Make, batches: Batches) -> None:
    co2l = learner("co2l", schedule="cosine", lr=0.01)
    rates = []
    for epoch in (0, 1, 2, 3, 0):
        batch = batches(1)[0]
        co2l.learn(Batch(batch.x, batch.y, epoch=epoch, epochs=4))
        rates.append(co2l.optimizer.param_groups[0]["lr"])
    low = 1e-5
    wanted = [low + (0.01 - low) * (1 + math.cos(math.pi * e / 4)) / 2 for e in (0, 1, 2, 3, 0)]
    assert rates == pytest.approx(wanted)


def test_the_reference_runs() -> None:
    small = {"epochs": 1, "linear_views": 2, "linear_epochs": 2}
    session = checks.make(Co2l, **(Co2l.presets["reference"] | small))
    checks.feed(session, checks.TWO_TASKS)
    assert session.learner.readout == "head"
    state = session.learner.state_dict()
    assert any(k.endswith("momentum_buffer") for k in state)


@pytest.mark.parametrize("change", [{"kappa": 0.0}, {"linear_views": 0}, {"momentum": 1.0}])
def test_settings_out_of_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(OcilError, match=next(iter(change))):
        Co2lSettings(**change)
