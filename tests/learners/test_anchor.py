"""The anchor beside a method: it reads every sample once and changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ocil import checks
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.pool import GRID, START, Pool
from ocil.run.reading import read_record
from ocil.session import Session

WITH = {"anchor": "patches", "anchor_width": 5}


def fed(method: str, batches: int = 40, **changes: Any) -> Session:
    made = checks.make(registry.get(method), **changes)
    checks.feed(made, checks.TWO_TASKS, batches=batches)
    return made


@pytest.mark.parametrize("anchor", ["patches", "random"])
@pytest.mark.parametrize("method", ["er", "otc", "scr", "bic", "finetune"])
def test_the_method_learns_and_answers_as_without_it(method: str, anchor: str) -> None:
    one, other = fed(method), fed(method, anchor=anchor, anchor_width=9)
    x = checks.images([0, 1, 2, 3], seed=5)
    own = list(one.learner.readouts())
    before, after = (
        one.learner.all_scores(one.learner.features(x), own),
        other.learner.all_scores(other.learner.features(x), own),
    )
    assert all(torch.equal(before[name], after[name]) for name in own)
    found = other.state().tensors
    for name, value in one.state().tensors.items():
        assert name == "learner.counts" or torch.equal(value, found[name]), name
    assert all(name.startswith("learner.anchor.") for name in set(found) - set(one.state().tensors))
    fused = {"fused"} if "head" in own else set()
    assert set(other.learner.readouts()) - set(own) == {"anchor"} | fused
    assert other.learner.readout == ("fused" if fused else "anchor")


@pytest.mark.parametrize("anchor", ["patches", "random"])
@pytest.mark.parametrize(
    "method", ["er", "otc", *(pytest.param(m, marks=pytest.mark.slow) for m in ("derpp", "cope"))]
)
def test_every_check_holds_with_it(
    method: str, anchor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = checks.small_settings

    def small(kind: Any, **changes: Any) -> Any:
        return plain(kind, **({"anchor": anchor, "anchor_width": 6} | changes))

    monkeypatch.setattr(checks, "small_settings", small)
    for check in checks.CHECKS:
        check(registry.get(method))


def test_a_state_after_the_dictionary_goes_on_to_the_same_bits() -> None:
    """Waiting features, chosen shrinkage and pool are state."""
    kind, more = registry.get("er"), WITH | {"memory": 30}
    one = checks.make(kind, **more)
    checks.feed(one, checks.TWO_TASKS, batches=36)  # 432 samples
    state, other = one.state(), checks.make(kind, **more)
    anchor: Any = one.learner.anchor  # type: ignore[attr-defined]
    assert anchor.moments.pending and anchor.pool.looks and float(anchor.moments.choice[1]) == 300
    other.load(type(state)({k: v.clone() for k, v in state.tensors.items()}, state.scalars))
    x = checks.images([0, 1, 2, 3], seed=5)
    for name in ("anchor", "fused"):
        assert torch.equal(one.learner.scores(x, name), other.learner.scores(x, name))
    for session in (one, other):
        checks.feed(session, ((5, 3),), batches=33)
    assert one.state().sha256() == other.state().sha256()


def test_every_sample_is_counted_once() -> None:
    made = checks.make(registry.get("er"), **WITH, epochs=2, updates=3)
    for epoch in (0, 1):
        for b in range(4):
            made.learn(checks.images([0, 1, 1], seed=b), [0, 1, 1], task=0, epoch=epoch)
    anchor: Any = made.learner.anchor  # type: ignore[attr-defined]
    assert anchor.moments.counts.tolist() == [4, 8]


def test_fused_is_the_pool_of_both() -> None:
    made = fed("er", **WITH)
    learner: Any = made.learner
    x = checks.images([0, 1, 2, 3], seed=5)
    found = learner.all_scores(learner.features(x), ["anchor", "ema-head", "fused"])
    t = float(learner.anchor.moments.choice[3])
    wanted = t * found["anchor"] + learner.anchor.pool.weight * found["ema-head"].log_softmax(1)
    torch.testing.assert_close(found["fused"], wanted)
    plain: Any = fed("er", **WITH, ema=0.0).learner
    found = plain.all_scores(plain.features(x), ["anchor", "head", "fused"])
    t, w = float(plain.anchor.moments.choice[3]), plain.anchor.pool.weight
    wanted = t * found["anchor"] + w * found["head"].log_softmax(1)
    torch.testing.assert_close(found["fused"], wanted)


def test_otc_fuses_head_and_mixtures() -> None:
    learner: Any = fed("otc", **WITH).learner
    x = checks.images([0, 1, 2, 3], seed=5)
    found = learner.all_scores(learner.features(x), ["anchor", "ema-head", "similarity", "fused"])
    logs = [found[name].log_softmax(1).clamp(min=-20) for name in ("ema-head", "similarity")]
    t, w = float(learner.anchor.moments.choice[3]), learner.anchor.pool.weight
    torch.testing.assert_close(found["fused"], t * found["anchor"] + w * sum(logs) / 2)


def test_the_weight_is_a_half_until_samples_speak() -> None:
    pool, y = Pool(torch.device("cpu")), torch.tensor([0, 1, 0, 1])
    right = torch.eye(2)[y]
    assert pool.weight == START
    pool.watch(torch.zeros(4, 2), right, y)
    assert pool.weight == START
    for _ in range(100):
        pool.watch(torch.zeros(4, 2), right, y)
    assert pool.weight == max(GRID)
    pool = Pool(torch.device("cpu"))
    for _ in range(200):
        pool.watch(right, right.flip(1), y)  # the net is wrong
    assert pool.weight == min(GRID)


def test_only_the_classes_of_a_batch_are_told_apart() -> None:
    """A net that knows no more than what came last gets no credit for it."""
    pool, y = Pool(torch.device("cpu")), torch.tensor([2, 3, 2])
    last = torch.tensor([0.0, 0.0, 9.0, 9.0]).expand(3, 4)
    pool.watch(torch.zeros(3, 4), last, y)
    assert float(pool.losses.std()) < 1e-9
    before = pool.losses.clone()
    pool.watch(torch.zeros(3, 4), torch.randn(3, 4), torch.tensor([1, 1, 1]))
    assert torch.equal(pool.losses, before)  # one class tells nothing


def test_without_samples_nothing_of_the_stream_is_left() -> None:
    for batches in (10, 40):  # before and after the dictionary
        state = fed("er", batches, **WITH).state(samples=False)
        held = ("column", ".rows", ".kept", ".labels")
        assert not [k for k, v in state.tensors.items() if any(h in k for h in held) and v.numel()]
        checks.make(registry.get("er"), **WITH).load(state)


def test_what_has_no_effect_is_refused() -> None:
    with pytest.raises(OcilError, match="anchor_width has no effect with anchor = none"):
        registry.resolve("er", {"anchor_width": 30})
    with pytest.raises(OcilError, match="anchor in the settings is 'patches' but must be 'none'"):
        registry.make_settings("slda", {"anchor": "patches"})
    with pytest.raises(OcilError, match="take random"):
        Session("er", registry.make_settings("er", {"anchor": "patches"}), (12,))


def test_the_anchor_of_a_default_width_holds_at_most_16_mb() -> None:
    settings = registry.make_settings("er", {"anchor": "patches", "memory": 1000})
    for shape in ((3, 32, 32), (1, 28, 28)):
        made = Session("er", settings, shape)
        anchor: Any = made.learner.anchor  # type: ignore[attr-defined]
        y = torch.arange(100)
        anchor.moments.add(torch.zeros(100, anchor.moments.dim), y)
        waiting = 128 * anchor.moments.dim * 4
        assert 11e6 < sum(part.nbytes for part in anchor.parts.values()) + waiting < 16e6


@pytest.mark.parametrize("method", ["er", "otc"])
def test_preset_large_has_more_filters_and_else_the_default(method: str) -> None:
    for data, width in {"digits": 0, "mnist": 300, "cifar10": 800}.items():
        large, _ = registry.resolve(method, {"preset": "large", "data": data, "memory": 1000})
        usual, _ = registry.resolve(method, {"data": data, "memory": 1000})
        assert (large.pop("anchor"), large.pop("anchor_width")) == ("patches", width)
        differ = {k for k in large if large[k] != usual[k]}
        assert differ <= {"preset"}


def test_one_run_yields_all_three(ocil: Callable[..., Any], tmp_path: Path) -> None:
    words = "--data digits --memory 50 --validate --limit-per-class 50 --eval-every 20"
    more = "--anchor patches --anchor-width 20 --readout fused"
    assert ocil("run", "er", *words.split(), *more.split(), "--out", str(tmp_path / "a")).code == 0
    record = read_record(tmp_path / "a" / "record.json")
    assert {"ema-head", "anchor", "fused"} <= set(record["readouts"])
    assert record["readout"] == "fused"
    assert record["final_average_accuracy"] > 85
    assert record["bytes_kept_to_evaluate"] > 0
