"""Images and classes that leave a memory: its lists stay sound and free slots are filled first."""

from __future__ import annotations

import pytest
import torch

from ocil.memory import Memory
from ocil.memory.holdout import HeldOut

X = torch.arange(40, dtype=torch.uint8)[:, None]
Y = torch.arange(40) % 4


def full(kind: type[Memory] = Memory) -> Memory:
    memory = kind(12)
    memory.reservoir(X, Y, torch.Generator().manual_seed(0), extra=X[:, 0].float())
    return memory


def need_sound(memory: Memory, classes: int) -> None:
    """What it holds loads into another, which checks all lists, and says the same."""
    other = Memory(memory.capacity)
    other.load_state_dict(memory.state_dict(), classes)
    assert other.members[: len(memory.members)] == memory.members[: len(other.members)]
    for name in ("labels", "index_in_class", "filled", "seen"):
        assert getattr(other, name) == getattr(memory, name), name
    held = slice(len(memory))
    if len(memory):
        x, y, extra = (memory.columns[name][held] for name in ("x", "y", "extra"))
        assert memory.labels == y.tolist()
        assert torch.equal(x[:, 0].float(), extra)


@pytest.mark.parametrize("label", [0, 1, 3])
def test_a_class_leaves(label: int) -> None:
    memory = full()
    before = sorted((int(x), c) for x, c in zip(memory.columns["x"], memory.labels, strict=True))
    memory.forget(label)
    need_sound(memory, 3)
    held = memory.columns["x"][: len(memory), 0].tolist()
    after = sorted(zip(held, memory.labels, strict=True))
    assert after == [(x, c - (c > label)) for x, c in before if c != label]
    assert len(memory) <= memory.seen < 40


def test_images_leave_or_change_their_class_and_others_do_not() -> None:
    memory = full()
    there, c = memory.columns["x"][3].clone(), memory.labels[3]
    assert c != 0
    memory.relabel(there[None], torch.tensor([0]), torch.tensor([2]))  # of another class: not it
    assert memory.labels[3] == c
    memory.relabel(there[None], torch.tensor([c]), torch.tensor([0]))
    assert memory.labels[3] == 0
    need_sound(memory, 4)
    memory.remove(there[None], torch.tensor([0]))
    assert not (memory.columns["x"][: len(memory)] == there).any()
    assert (len(memory), memory.seen) == (11, 39)
    need_sound(memory, 4)


def test_free_slots_are_filled_first_and_then_the_reservoir_goes_on() -> None:
    memory, draw = full(), torch.Generator().manual_seed(1)
    memory.forget(2)
    free = memory.capacity - len(memory)
    assert free
    assert memory.reservoir_slots(free, draw) == list(range(len(memory), memory.capacity))
    slots = memory.reservoir_slots(2000, draw)
    assert slots[:free] == list(range(len(memory), memory.capacity))
    assert -1 in slots[free:]
    assert max(slots) < memory.capacity


def test_the_last_images_may_leave() -> None:
    memory = full()
    for _ in range(4):
        memory.forget(0)
    assert (len(memory), memory.columns, memory.seen) == (0, {}, 0)
    need_sound(memory, 0)


def test_images_held_out_that_left_are_not_recognised() -> None:
    held = HeldOut(4)
    for x, y in zip(X[:4], Y[:4], strict=True):
        held.hold(x, y, 4, torch.Generator())
    assert X[1] in held
    held.forget(1)
    assert X[1] not in held
    assert X[2] in held
