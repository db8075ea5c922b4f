"""What learners share: weight average, read-outs, growth and state."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest
import torch
from torch import nn

from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.learner import Learner
from ocil.learners.model import Model, WeightAverage
from ocil.learners.replay import ReplayLearner, as_float
from ocil.stream import Batch

Make = Callable[..., Learner]
Batches = Callable[..., list[Batch]]


# ------------------------------------------------------------------ average of the weights


class WithNorm(nn.Module):
    features = 3

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 3), nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


@pytest.mark.parametrize("decay", [0.995, 0.5, 0.05])
def test_the_average_follows_its_formula_buffers_included(decay: float) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Model(WithNorm(), torch.Generator().manual_seed(0))
        average = WeightAverage(model, decay)
        slow = {k: v.clone() for k, v in model.state_dict().items()}
        for t in range(25):
            model(torch.randn(8, 4))  # moves the running statistics
            for p in model.parameters():
                p.data += torch.randn_like(p)
            average.update()
            a = min(decay, (1 + t) / (10 + t))
            for name, value in model.state_dict().items():
                slow[name] = a * slow[name] + (1 - a) * value
    averaged = average.model.state_dict()
    assert "net.norm.running_var" in slow
    for name, value in slow.items():
        if value.is_floating_point() and "num_batches" not in name:
            torch.testing.assert_close(averaged[name], value)
    assert average.updates == 25


def test_the_first_update_takes_nine_tenths_of_the_weights() -> None:
    model = Model(WithNorm(), torch.Generator())
    average = WeightAverage(model, 0.995)
    before = model.net.linear.weight.detach().clone()  # type: ignore[union-attr]
    model.net.linear.weight.data += 1.0  # type: ignore[union-attr]
    average.update()
    torch.testing.assert_close(average.model.net.linear.weight, before + 0.9)  # type: ignore


def test_new_classes_start_in_the_average_with_the_rows_of_the_head(
    learner: Make, batches: Batches
) -> None:
    er = learner()
    for batch in batches(3):
        er.learn(batch)
    assert er.average is not None
    old = er.average.model.head.weight.clone()
    er.add_classes(torch.tensor([2, 3]))
    assert torch.equal(er.average.model.head.weight[:2], old)
    assert torch.equal(er.average.model.head.weight[2:], er.model.head.weight[2:])
    assert torch.equal(er.average.model.head.bias[2:], er.model.head.bias[2:])
    assert not torch.equal(old, er.model.head.weight[:2])


def test_the_average_is_updated_once_a_gradient_step_and_never_learns(
    learner: Make, batches: Batches
) -> None:
    er, without = learner(updates=2), learner(updates=2, ema=0.0)
    for batch in batches(4):
        er.learn(batch)
        without.learn(batch)
    assert er.average is not None
    assert without.average is None
    assert er.average.updates == 8
    assert all(p.grad is None and not p.requires_grad for p in er.average.model.parameters())
    # keeping an average does not alter what is learned
    for a, b in zip(er.model.parameters(), without.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_average_after_growth_follows_the_formula(learner: Make, batches: Batches) -> None:
    er = learner()
    assert er.average is not None
    slow: dict[str, torch.Tensor] = {k: v.clone() for k, v in er.model.state_dict().items()}
    for t, batch in enumerate(batches(9)):
        er.learn(batch)
        a = min(er.settings.ema, (1 + t) / (10 + t))
        for name, value in er.average.model.state_dict().items():
            live = er.model.state_dict()[name]
            known = len(slow[name])
            expected = a * slow[name] + (1 - a) * live[:known]
            torch.testing.assert_close(value[:known], expected)
            slow[name] = value.clone()


# ------------------------------------------------------------------ growth


def test_growth_keeps_old_rows_and_their_moments(learner: Make, batches: Batches) -> None:
    er = learner()
    for batch in batches(3):
        er.learn(batch)
    weight, bias = er.model.head.weight.detach().clone(), er.model.head.bias.detach().clone()
    moments = er.optimizer.state[er.model.head.weight]["exp_avg"].clone()
    er.add_classes(torch.tensor([4]))
    assert er.classes == 5
    assert er.model.head.weight.shape == (5, 6)
    assert torch.equal(er.model.head.weight[:2], weight)
    assert torch.equal(er.model.head.bias[:2], bias)
    state = er.optimizer.state[er.model.head.weight]
    assert torch.equal(state["exp_avg"][:2], moments)
    assert not state["exp_avg"][2:].any()
    assert not state["exp_avg_sq"][2:].any()


# ------------------------------------------------------------------ read-outs


def taught(learner: Make, batches: Batches, **changes: Any) -> Learner:
    er = learner(**changes)
    for batch in batches(6):
        er.learn(batch)
    return er


@pytest.mark.parametrize("prefix", ["", "ema-"])
def test_the_read_out_by_class_means_against_a_loop(
    learner: Make, batches: Batches, prefix: str
) -> None:
    er = taught(learner, batches)
    x = batches(8)[7].x
    memory, model = er.memory, er.average.model if prefix and er.average else er.model
    assert memory is not None
    with torch.no_grad():
        expected = torch.empty(len(x), er.classes)
        for c in range(er.classes):
            rows = [s for s in range(len(memory)) if memory.labels[s] == c]
            mean = torch.zeros(6)
            for slot in rows:
                h = model.net(memory.columns["x"][slot][None].float() / 255)[0]
                mean += h / h.norm().clamp(min=1e-12) / len(rows)
            mean /= mean.norm().clamp(min=1e-12)
            for i, image in enumerate(x):
                h = model.net(image[None].float() / 255)[0]
                expected[i, c] = -(h / h.norm().clamp(min=1e-12) - mean).square().sum()
    scores = er.scores(x, f"{prefix}mean")
    torch.testing.assert_close(scores, expected, rtol=1e-3, atol=1e-5)


def test_the_head_read_out_is_the_eval_mode_model(learner: Make, batches: Batches) -> None:
    er = taught(learner, batches)
    x = batches(1)[0].x
    with torch.no_grad():
        torch.testing.assert_close(er.scores(x, "head"), er.model(x.float() / 255))
        assert er.average is not None
        torch.testing.assert_close(er.scores(x, "ema-head"), er.average.model(x.float() / 255))
    assert er.model.training


def test_batch_norm_is_in_eval_mode_when_asked_and_in_training_mode_when_learning(
    learner: Make, batches: Batches
) -> None:
    er = learner(net="resnet18", width=2, shape=(3, 32, 32))
    er.learn(batches(1, (3, 32, 32))[0])
    x = batches(2, (3, 32, 32))[1].x
    together = er.scores(x, "head")
    alone = torch.cat([er.scores(x[i : i + 1], "head") for i in range(len(x))])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-4)
    assert er.model.training
    statistics = {k: v for k, v in er.model.state_dict().items() if "running_mean" in k}
    before = {k: v.clone() for k, v in statistics.items()}
    er.learn(batches(2, (3, 32, 32))[1])
    assert any(not torch.equal(v, before[k]) for k, v in statistics.items())


@pytest.mark.parametrize("count", [1, 30, 300])  # cdist changes its algorithm with the size
def test_a_class_missing_from_memory_scores_minus_infinity_and_never_nan(
    learner: Make, batches: Batches, count: int
) -> None:
    er = taught(learner, batches, memory=20)
    assert er.memory is not None
    for slot in list(er.memory.members[1]):
        er.memory.write([slot], batches(1)[0].x[:1], torch.tensor([0]))
    er.cache.clear()
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (count, 1, 4, 4), dtype=torch.uint8, generator=draw)
    x[0] = 0
    for readout in ("mean", "ema-mean"):
        scores = er.scores(x, readout)
        assert not scores.isnan().any()
        assert (scores[:, 1] == -torch.inf).all()
        assert scores[:, [0, 2, 3]].isfinite().all()
        assert (scores.argmax(1) != 1).all()


def test_means_are_kept_until_the_next_batch(learner: Make, batches: Batches) -> None:
    er = taught(learner, batches)
    x = batches(8)[7].x
    passes = counted_passes(er)
    first = er.scores(x, "mean")
    assert torch.equal(er.scores(x, "mean"), first)
    assert passes == [len(x), len(er.memory), len(x)]  # the memory once
    er.learn(batches(6)[5])  # classes that it knows: nothing grows
    again = er.scores(x, "mean")
    er.cache.clear()
    assert torch.equal(er.scores(x, "mean"), again)
    assert not torch.equal(again, first)


def counted_passes(learner: ReplayLearner) -> list[int]:
    """How many images went through a net at each call from now on."""
    passes: list[int] = []
    encode = learner.encode

    def counting(model: Model, x: torch.Tensor) -> torch.Tensor:
        passes.append(len(x))
        return encode(model, x)

    learner.encode = counting  # type: ignore[method-assign]
    return passes


def test_all_read_outs_come_from_one_pass_each(learner: Make, batches: Batches) -> None:
    er = taught(learner, batches)
    x = batches(8)[7].x
    assert list(er.readouts()) == ["head", "mean", "ema-head", "ema-mean"]
    alone = {name: er.scores(x, name) for name in er.readouts()}  # the means are kept by now
    passes = counted_passes(er)
    together = er.all_scores(er.features(x), list(er.readouts()))
    assert passes == [len(x)] * 2  # live and averaged weights
    assert list(together) == list(er.readouts())
    for name, scores in alone.items():
        assert torch.equal(together[name], scores)
    assert len({tuple(scores.flatten().tolist()) for scores in alone.values()}) == 4


def test_scores_before_the_first_batch_have_no_columns(learner: Make, batches: Batches) -> None:
    er = learner()
    for readout in er.readouts():
        assert er.scores(batches(1)[0].x, readout).shape == (5, 0)


def test_images_are_chunked_without_a_trace(learner: Make, batches: Batches) -> None:
    er = taught(learner, batches)
    x = torch.cat([b.x for b in batches(60)])
    assert len(x) == 300
    torch.testing.assert_close(er.scores(x)[:5], er.scores(x[:5]))


@pytest.mark.parametrize(
    ("changes", "readout"),
    [({}, "ema-head"), ({"ema": 0.0}, "head"), ({"readout": "mean"}, "mean")],
)
def test_the_read_out_that_counts(learner: Make, changes: dict[str, Any], readout: str) -> None:
    assert learner(**changes).readout == readout


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"readout": "maen"}, "Did you mean 'mean'"),
        ({"readout": "ema-head", "ema": 0.0}, "Known here: head, mean"),
    ],
)
def test_an_unknown_read_out_is_refused(learner: Make, changes: dict[str, Any], hint: str) -> None:
    with pytest.raises(OcilError, match=hint):
        learner(**changes)


# ------------------------------------------------------------------ state


@pytest.mark.parametrize("changes", [{}, {"optimizer": "sgd"}, {"retrieval": "balanced"}])
def test_a_state_taken_up_elsewhere_learns_the_same_bits(
    learner: Make, batches: Batches, changes: dict[str, Any]
) -> None:
    one, other = learner(**changes), learner(**changes)
    for batch in batches(5):
        one.learn(batch)
    other.load_state_dict({k: v.clone() for k, v in one.state_dict().items()})
    for purpose, generator in one.generators.items():
        other.generators[purpose].set_state(generator.get_state())
    for batch in batches(12)[5:]:
        one.learn(batch)
        other.learn(batch)
    mine, theirs = one.state_dict(), other.state_dict()
    assert list(mine) == list(theirs)
    assert all(torch.equal(mine[k], theirs[k]) for k in mine)


def test_a_teacher_whose_heads_know_different_classes_is_refused(
    learner: Make, batches: Batches
) -> None:
    bic = learner("bic-ac")
    for batch in batches(3):
        bic.learn(batch)
    bic.end_task(0, batch.x, batch.y)
    bic.begin_task(1)
    state = bic.state_dict()
    learner("bic-ac").load_state_dict(state)
    for name in ("weight", "bias"):
        state[f"teacher.branches.0.head.{name}"] = state[f"teacher.branches.0.head.{name}"][:1]
    with pytest.raises(ValueError, match="teacher knows other classes"):
        learner("bic-ac").load_state_dict(state)


def test_the_state_is_a_copy_of_nothing_that_scores_change(learner: Make, batches: Batches) -> None:
    er = taught(learner, batches)
    before = copy.deepcopy(er.state_dict())
    for name in er.readouts():
        er.scores(batches(1)[0].x, name)
    assert all(torch.equal(v, before[k]) for k, v in er.state_dict().items())


def test_bytes_beyond_net_and_memory_are_the_averaged_weights(learner: Make) -> None:
    er = learner()
    er.add_classes(torch.tensor([1]))
    numbers = 16 * 6 + 6 + 6 * 6 + 6 + 2 * 6 + 2
    assert er.nbytes == 4 * numbers
    assert learner(ema=0.0).nbytes == 0


# ------------------------------------------------------------------ registry


def test_the_registry_knows_the_methods_and_suggests() -> None:
    assert {"er", "finetune", "joint"} <= set(registry.names())
    assert not {"learner", "model", "registry"} & set(registry.names())
    for name in registry.names():
        assert registry.get(name).method == name
    with pytest.raises(OcilError, match=r"Unknown method 'finetine'\. Did you mean 'finetune'"):
        registry.get("finetine")


def test_a_method_of_another_package_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = metadata.EntryPoint("er-mine", "ocil.learners.er:Er", "ocil.learners")
    monkeypatch.setattr(registry, "_foreign", lambda: (entry,))
    assert "er-mine" in registry.names()
    assert registry.get("er-mine") is registry.get("er")


def test_a_diverged_net_gives_no_nan_from_the_means(learner: Make, batches: Batches) -> None:
    er = taught(learner, batches)
    with torch.no_grad():
        er.model.net.hidden1.weight.fill_(math.nan)  # type: ignore[union-attr]
    er.cache.clear()
    assert not er.scores(batches(1)[0].x, "mean").isnan().any()


@pytest.mark.parametrize("method", ["er", "otc"])
def test_stream_images_in_several_views_the_last_as_it_came(
    learner: Make, batches: Batches, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = (3, 8, 8)
    made = learner(method, shape, augment="full", views=3)
    for batch in batches(3, shape):
        made.learn(batch)
    taught: list[tuple[torch.Tensor, torch.Tensor]] = []
    plain = made.augment_views

    def spy(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        taught.append(plain(*given))
        return taught[-1]

    monkeypatch.setattr(made, "augment_views", spy)
    before = made.backbone_images
    last = batches(4, shape)[-1]
    made.learn(last)
    (x, y), n = taught[0], len(last.y)
    assert len(x) == len(y) == 7 + 3 * n  # 7 replayed
    assert made.backbone_images - before == 7 + 3 * n + (7 + n if method == "otc" else 0)
    shown = x[7:].view(3, n, *shape)
    assert torch.equal(y[7:], last.y.repeat(3))
    assert torch.equal(shown[2], as_float(last.x))
    assert not any(torch.equal(shown[a], shown[b]) for a, b in ((0, 1), (0, 2), (1, 2)))


def test_no_views_at_all_are_refused(learner: Make) -> None:
    for method in ("er", "otc"):
        with pytest.raises(OcilError, match="views is 0 but must be at least 1"):
            learner(method, views=0)


def test_a_net_standardizes_by_the_numbers_of_the_data_set(learner: Make) -> None:
    er = learner("er", (1, 28, 28), data="mnist", inputs="standardized")
    plain = learner("er", (1, 28, 28), data="mnist")
    x = torch.randint(256, (3, 1, 28, 28), dtype=torch.uint8)
    ready = (x.float() / 255 - 0.1307) / 0.3081
    torch.testing.assert_close(er.encode(er.model, x), plain.model.net(ready))
    assert er.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize(
    ("data", "shape"),
    [("digits", (1, 8, 8)), ("my-folder", (3, 32, 32)), ("mnist", (3, 28, 28)), ("mnist", (784,))],
)
def test_what_has_no_mean_and_deviation_is_not_standardized(
    learner: Make, data: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(OcilError, match=f"of {data} .*cifar10.*--inputs unit"):
        learner("er", shape, data=data, inputs="standardized")


def test_a_class_that_came_last_and_is_not_held_has_no_mean() -> None:
    from ocil.learners.readouts import class_means, mean_centroids

    z, y = torch.eye(3), torch.tensor([0, 1, 1])
    means = class_means(z, y, 4)
    assert means.shape == (4, 3)
    assert bool(means[2:].isinf().all()) and bool(means[:2].isfinite().all())
    assert mean_centroids(z, y, 4).classes.tolist() == [0, 1]


@pytest.mark.parametrize(("method", "holding"), [("otc", {"memory"}), ("bic", {"memory", "held"})])
def test_only_memories_hold_samples(learner: Make, method: str, holding: set[str]) -> None:
    parts = learner(method).parts
    assert {name for name, part in parts.items() if part.holds_samples} == holding
    assert {"model", "optimizer", "average"} <= set(parts) - holding
