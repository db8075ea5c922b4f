"""A session maps labels, refuses what it cannot learn from, and survives a round trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ocil.errors import OcilError
from ocil.learners.er import ErSettings
from ocil.session import Session, State, check_device

SHAPE = (1, 4, 4)


def session(**changes: Any) -> Session:
    values = {"width": 6, "memory": 12, "replay": 8, "seed": 1, "augment": "affine"}
    return Session("er", ErSettings(**(values | changes)), SHAPE)


def images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), dtype=np.uint8)


def taught(steps: int = 4, **changes: Any) -> Session:
    one = session(**changes)
    for step in range(steps):
        one.learn(images(5, step), ["b", "a", "b", f"new {step}", "a"])
    return one


def test_ids_follow_the_order_of_arrival() -> None:
    one = taught(2)
    assert one.labels.classes == ["b", "a", "new 0", "new 1"]
    assert one.learner.classes == 4
    assert one.step == 2
    assert one.learner.scores(torch.from_numpy(images(3))).shape == (3, 4)


@pytest.mark.parametrize(
    ("x", "labels", "said"),
    [
        (np.zeros((2, 1, 5, 4), np.uint8), [0, 1], r"shape \(2, 1, 5, 4\)"),
        (np.zeros((0, 1, 4, 4), np.uint8), [], "one or more items"),
        (np.zeros((2, 1, 4, 4), np.uint8), [0], "2 items but 1 labels"),
        (np.zeros((1, 1, 4, 4), np.uint8), [0.5], "labels must be whole numbers or text"),
        (np.full((1, 1, 4, 4), np.nan, np.float32), [0], "NaN or infinite"),
        (np.full((1, 1, 4, 4), np.inf, np.float32), [0], "NaN or infinite"),
    ],
)
def test_a_batch_that_cannot_be_learned_is_refused(x: np.ndarray, labels: Any, said: str) -> None:
    one = taught(1)
    before = one.state().sha256()
    with pytest.raises(OcilError, match=said):
        one.learn(x, labels)
    assert one.state().sha256() == before


def test_images_may_be_read_only() -> None:
    x = images(5)
    x.flags.writeable = False  # as a slice of a memory-mapped data set; warnings are errors here
    one, other = session(), session()
    one.learn(x, [0, 1, 0, 1, 2])
    other.learn(images(5), [0, 1, 0, 1, 2])
    assert one.state().sha256() == other.state().sha256()


def test_labels_may_be_an_array() -> None:
    one = session()
    one.learn(images(3), np.array([5, 2, 5]))  # type: ignore[arg-type]
    assert one.labels.classes == [5, 2]
    assert len(one.state().sha256()) == 64


# ------------------------------------------------------------------ state


def copied(state: State) -> State:
    return State({k: v.clone() for k, v in state.tensors.items()}, dict(state.scalars))


def test_a_state_gives_the_same_future() -> None:
    one, other = taught(), session()
    other.load(copied(one.state()))
    assert other.state().sha256() == one.state().sha256()
    for each in (one, other):
        each.learn(images(5, 9), ["z", "a", "a", "b", "b"])
    assert other.state().sha256() == one.state().sha256()


def test_the_hash_follows_every_tensor_and_scalar() -> None:
    state = taught().state()
    whole = state.sha256()
    assert {k.split(".")[0] for k in state.tensors} == {"learner", "generator"}
    for name, value in state.tensors.items():
        changed = copied(state)
        flat = value.clone().reshape(-1)
        if not len(flat):
            continue
        flat[0] = flat[0] + 1
        changed.tensors[name] = flat.reshape(value.shape)
        assert changed.sha256() != whole, name
    for change in ({"step": 5}, {"labels": ["a"]}, {"method": "joint"}):
        assert State(state.tensors, state.scalars | change).sha256() != whole
    renamed = {("x" + k if k == "learner.counts" else k): v for k, v in state.tensors.items()}
    assert State(renamed, state.scalars).sha256() != whole


def test_the_hash_follows_shape_and_dtype_and_not_the_order() -> None:
    zeros = torch.zeros(4, dtype=torch.int32)
    plain = State({"a": zeros, "b": zeros}, {}).sha256()
    assert State({"b": zeros, "a": zeros}, {}).sha256() == plain
    assert State({"a": zeros.reshape(2, 2), "b": zeros}, {}).sha256() != plain
    assert State({"a": zeros.float(), "b": zeros}, {}).sha256() != plain
    strided = torch.arange(6).reshape(2, 3).T
    assert State({"a": strided}, {}).sha256() == State({"a": strided.contiguous()}, {}).sha256()


def test_generators_of_purposes_do_not_share_draws() -> None:
    one = session()
    states = [g.get_state().tolist() for g in one.generators.values()]
    assert all(a != b for i, a in enumerate(states) for b in states[:i])


def _drop(key: str) -> Callable[[State], Any]:
    return lambda state: state.tensors.pop(key)


def _put(key: str, value: torch.Tensor) -> Callable[[State], Any]:
    return lambda state: state.tensors.update({key: value})


def _say(**scalars: Any) -> Callable[[State], Any]:
    return lambda state: state.scalars.update(scalars)


HOSTILE = {
    "no weights": _drop("learner.model.net.hidden1.weight"),
    "no counts": _drop("learner.counts"),
    "no memory": _drop("learner.memory.place"),
    "weights of another shape": _put("learner.model.net.hidden1.weight", torch.zeros(6, 17)),
    "a head of another width": _put("learner.model.head.weight", torch.zeros(6, 7)),
    "a head with other rows": _put("learner.model.head.weight", torch.zeros(3, 6)),
    "an averaged head with other rows": _put("learner.average.head.weight", torch.zeros(3, 6)),
    "counts that are not two": _put("learner.counts", torch.zeros(3)),
    "a moment of another shape": _put("learner.optimizer.0.exp_avg", torch.zeros(2)),
    "more classes than rows": _put("learner.counts", torch.tensor([9, 9])),
    "images of another size": _put("learner.memory.column.x", torch.zeros(12, 1, 9, 9)),
    "labels beyond": _put("learner.memory.column.y", torch.full((12,), 2**40)),
    "a generator of no purpose": _put("generator.x", torch.zeros(8, dtype=torch.uint8)),
    "a generator state of another size": _put("generator.init", torch.zeros(8, dtype=torch.uint8)),
    "another method": _say(method="joint"),
    "labels that are a number": _say(labels=5),
    "labels twice": _say(labels=["b", "b", "a", "c", "d", "e"]),
    "labels too few": _say(labels=["b", "a"]),
    "labels that are lists": _say(labels=[[1], [2], [3], [4], [5], [6]]),
    "labels that are real numbers": _say(labels=[1.5, 2.5, 3.5, 4.5, 5.5, 6.5]),
    "a step that is text": _say(step="4"),
    "a negative step": _say(step=-1),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_state_that_does_not_fit_is_one_sentence(change: Callable[[State], Any]) -> None:
    state = copied(taught().state())
    change(state)
    with pytest.raises(OcilError) as caught:
        session().load(state)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_state_of_other_settings_does_not_fit() -> None:
    with pytest.raises(OcilError, match=r"does not fit er with its settings \(.*size mismatch"):
        session(width=7).load(taught().state())
    with pytest.raises(OcilError, match="sizes of the memory"):
        session(memory=3).load(taught().state())


# ------------------------------------------------------------------ devices


@pytest.mark.parametrize("name", ["gpu", "cpu:x", "", "cuda-0"])
def test_an_unknown_device_is_said(name: str) -> None:
    with pytest.raises(OcilError, match="Unknown device"):
        check_device(name)


def test_a_device_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OcilError, match=r"'cuda' is not available .* use --device cpu"):
        check_device("cuda")
    check_device("cpu")
