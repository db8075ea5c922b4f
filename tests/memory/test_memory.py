"""The tensor store: what was written is read, class lists stay right, state decides later draws."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ocil.memory import Memory


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def items(count: int, first: int = 0, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Images that hold their own number, and labels that follow from it."""
    numbers = torch.arange(first, first + count)
    return numbers.to(torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2), numbers % classes


def filled(capacity: int = 20, stream: int = 90, batch: int = 10) -> Memory:
    memory, draw = Memory(capacity), generator()
    for first in range(0, stream, batch):
        x, y = items(batch, first)
        memory.reservoir(x, y, draw, number=torch.arange(first, first + batch).float())
    return memory


def check_lists(memory: Memory) -> None:
    """Class lists and places against a slow count over the labels."""
    for label, slots in enumerate(memory.members):
        assert sorted(slots) == [s for s, own in enumerate(memory.labels) if own == label]
    assert sum(map(len, memory.members)) == len(memory)
    for slot, label in enumerate(memory.labels):
        assert memory.members[label][memory.index_in_class[slot]] == slot
    if memory.columns:
        assert memory.columns["y"][: len(memory)].tolist() == memory.labels


def test_image_label_and_columns_stay_together() -> None:
    memory = filled()
    assert (len(memory), memory.seen) == (20, 90)
    found = memory.draw(12, generator(1))
    assert set(found) == {"x", "y", "number"}
    assert found["x"].shape == (12, 1, 2, 2)
    assert found["x"].dtype == torch.uint8
    assert torch.equal(found["x"][:, 0, 0, 0], found["number"].to(torch.uint8))
    assert torch.equal(found["y"], found["number"].long() % 3)
    assert len(set(found["number"].tolist())) == 12


def test_before_it_is_full_everything_is_kept_and_drawn() -> None:
    memory = filled(capacity=50, stream=30)
    assert sorted(memory.draw(64, generator())["number"].tolist()) == list(range(30))
    assert sorted(memory.draw(64, generator(), "balanced")["number"].tolist()) == list(range(30))


def test_a_memory_smaller_than_the_batch() -> None:
    memory, draw = Memory(3), generator()
    for first in range(0, 80, 20):
        memory.reservoir(*items(20, first), draw)
        check_lists(memory)
    assert (len(memory), memory.seen) == (3, 80)
    assert len(memory.draw(64, draw)["y"]) == 3


def test_of_two_for_one_slot_the_last_stays() -> None:
    memory = Memory(2)
    memory.write([0, 1, 0, -1], *items(4))
    assert memory.columns["x"][:, 0, 0, 0].tolist() == [2, 1]
    check_lists(memory)


def test_nothing_kept_changes_nothing() -> None:
    memory = filled()
    before = {k: v.clone() for k, v in memory.state_dict().items()}
    memory.write([-1, -1], *items(2))
    assert all(torch.equal(v, before[k]) for k, v in memory.state_dict().items())


def test_what_is_kept_does_not_follow_the_callers_tensor() -> None:
    memory = Memory(4)
    x, y = torch.zeros(4, 2), torch.arange(4)
    memory.write([0, 1, 2, 3], x, y)
    x += 1
    y += 1
    assert memory.columns["x"].sum() == 0
    assert memory.columns["y"].tolist() == memory.labels == [0, 1, 2, 3]
    drawn = memory.draw(4, generator())
    drawn["x"] += 1
    assert memory.columns["x"].sum() == 0


@given(st.integers(1, 12), st.lists(st.lists(st.integers(0, 6), max_size=15), max_size=40))
@settings(max_examples=40, deadline=None)
def test_class_lists_are_right_after_any_writes(capacity: int, batches: list[list[int]]) -> None:
    memory, draw = Memory(capacity), generator()
    for labels in batches:
        y = torch.tensor(labels, dtype=torch.int64)
        memory.reservoir(torch.zeros(len(y), 1), y, draw)
        check_lists(memory)
    drawn = memory.draw(5, draw, "balanced") if len(memory) else {}
    assert len(drawn.get("y", [])) == min(5, len(memory))


def test_class_lists_are_right_after_thousands_of_writes() -> None:
    memory, draw = Memory(32), generator(7)
    for _ in range(2000):
        slot = int(torch.randint(0, min(len(memory) + 1, 32), (), generator=draw))
        memory.write([slot], torch.zeros(1, 1), torch.randint(0, 9, (1,), generator=draw))
    check_lists(memory)
    assert len(memory) == 32


def test_balanced_draws_are_even_over_classes() -> None:
    memory = Memory(40)
    y = torch.tensor([0] * 30 + [3] * 10)  # classes 1 and 2 are not held
    memory.write(list(range(40)), torch.zeros(40, 1), y)
    assert torch.bincount(memory.draw(16, generator(), "balanced")["y"]).tolist() == [8, 0, 0, 8]


def test_draws_of_random_classes_do_not_ask_how_many_a_class_has() -> None:
    memory, draw = Memory(40), generator()
    memory.write(list(range(40)), torch.arange(40.0)[:, None], torch.tensor([0] * 30 + [3] * 10))
    counts = []
    for _ in range(400):
        drawn = memory.draw(6, draw, "classes")
        assert len(drawn["x"].unique()) == 6
        counts.append(int((drawn["y"] == 3).sum()))
    assert sum(counts) / 400 == pytest.approx(3, abs=0.2)  # half, of a quarter of the memory
    assert set(counts) == set(range(7))  # and not always half: (1/2)^6 = 6 of 400 have none


def test_draws_of_random_classes_end_when_the_classes_do() -> None:
    memory, draw = Memory(9), generator()
    memory.write(
        list(range(9)), torch.arange(9.0)[:, None], torch.tensor([0, 1, 1, 2, 2, 2, 2, 2, 2])
    )
    for wanted in (8, 9, 20):
        drawn = memory.draw(wanted, draw, "classes")
        assert len(drawn["x"].unique()) == len(drawn["x"]) == min(wanted, 9)
    assert memory.choose(3, draw, "classes") != memory.choose(3, draw, "classes")
    assert Memory(5).choose(3, draw, "classes") == []


def test_bytes_of_the_filled_slots_count() -> None:
    memory = filled(capacity=100, stream=30)
    assert memory.nbytes == 30 * (4 + 8 + 4)


# ------------------------------------------------------------------ state


@pytest.mark.parametrize("how", ["uniform", "balanced", "classes"])
@pytest.mark.parametrize("stream", [0, 10, 90])
def test_a_state_gives_the_same_later_draws(how: str, stream: int) -> None:
    memory, copy = filled(stream=stream), Memory(20)
    state = {k: v.clone() for k, v in memory.state_dict().items()}
    copy.load_state_dict(state, classes=3)
    ours, theirs = generator(5), generator(5)
    for first in range(100, 200, 10):
        for each, draw in ((memory, ours), (copy, theirs)):
            each.reservoir(*items(10, first), draw, number=torch.arange(first, first + 10.0))
            check_lists(each)
        a, b = memory.draw(8, ours, how), copy.draw(8, theirs, how)
        assert all(torch.equal(a[k], b[k]) for k in a)
    assert copy.seen == memory.seen


def _cut(state: dict[str, torch.Tensor], key: str) -> None:
    state[key] = state[key][:-1]


HOSTILE: dict[str, Any] = {
    "a column too short": lambda s: _cut(s, "column.x"),
    "a place too few": lambda s: _cut(s, "place"),
    "a label that does not exist": lambda s: s["column.y"].__setitem__(0, 3),
    "a huge label": lambda s: s["column.y"].__setitem__(0, 2**60),
    "a negative label": lambda s: s["column.y"].__setitem__(0, -1),
    "labels that are no integers": lambda s: s.update({"column.y": s["column.y"].float()}),
    "a place twice": lambda s: s["place"].masked_fill_(s["column.y"] == 0, 0),
    "a place beyond": lambda s: s["place"].__setitem__(0, 1000),
    "a negative place": lambda s: s["place"].__setitem__(0, -1),
    "fewer seen than held": lambda s: s.update(seen=torch.tensor(3)),
    "rows of no items": lambda s: s.update({"column.z": torch.zeros(0, 10**6)}),
    "lists in two dimensions": lambda s: s.update(
        {k: s[k][:, None] for k in ("place", "column.y")}
    ),
    "too many rows": lambda s: s.update({k: v.repeat(2) for k, v in s.items() if k == "place"}),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_state_that_is_not_sound_is_refused(change: Any) -> None:
    state = {k: v.clone() for k, v in filled().state_dict().items()}
    change(state)
    with pytest.raises((ValueError, KeyError)):
        Memory(20).load_state_dict(state, classes=3)


def test_a_state_of_a_larger_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="sizes"):
        Memory(10).load_state_dict(filled().state_dict(), classes=3)


def test_a_class_without_images_is_not_drawn_from_after_loading() -> None:
    memory = Memory(capacity=4)
    memory.write([0, 1, 2], torch.zeros(3, 1, 2, 2), torch.tensor([0, 2, 2]))
    again = Memory(capacity=4)
    again.load_state_dict(memory.state_dict() | {"seen": torch.tensor(3)}, classes=3)
    assert again.filled == memory.filled == [0, 2]
    assert sorted(again.choose(3, torch.Generator(), "balanced")) == [0, 1, 2]
