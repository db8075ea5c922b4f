"""The part of the memory that is never replayed."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from ocil.memory import Memory
from ocil.memory.holdout import held_out


def offer(labels: list[int], capacity: int) -> tuple[Memory, list[int]]:
    """Offer images numbered 0, 1, ...; the memory, and which were held out when they came."""
    memory, draw, taken = Memory(capacity), torch.Generator().manual_seed(0), []
    for number, label in enumerate(labels):
        classes = max(labels[: number + 1]) + 1
        slot = held_out(memory.members, label, capacity, classes, draw)
        memory.write([slot], torch.tensor([[number]]), torch.tensor([label]))
        taken += [number] if slot >= 0 else []
    return memory, taken


def test_the_first_images_of_a_class_are_held_until_it_has_enough() -> None:
    memory, taken = offer([0, 0, 0, 1, 0, 1, 1, 1, 0], capacity=4)
    # while class 0 is alone it may fill all; class 1 then takes its share from it, and no more
    assert taken == [0, 1, 2, 3, 5]
    assert Counter(memory.labels) == {0: 2, 1: 2}
    assert sorted(memory.columns["x"].flatten().tolist()) == [0, 1, 3, 5]


@pytest.mark.parametrize(("capacity", "classes"), [(10, 5), (11, 3), (20, 7), (6, 6)])
def test_classes_are_held_evenly(capacity: int, classes: int) -> None:
    labels = [c for c in range(classes) for _ in range(50)]
    memory, _ = offer(labels, capacity)
    counts = Counter(memory.labels)
    assert set(counts) == set(range(classes))
    assert min(counts.values()) == capacity // classes
    assert len(memory) <= capacity


def test_with_more_classes_than_room_one_of_each_of_some() -> None:
    memory, _ = offer([c for c in range(40) for _ in range(3)], capacity=8)
    assert len(memory) == 8
    assert len(set(memory.labels)) == 8
    assert 39 in memory.labels
    assert min(memory.labels) < 32  # random ones left, not the oldest


def test_a_class_with_enough_draws_nothing() -> None:
    draw = torch.Generator().manual_seed(0)
    before = draw.get_state()
    assert held_out([[0, 1], [2]], 0, 4, 2, draw) == -1
    assert held_out([[0, 1], [2]], 1, 4, 2, draw) == 3
    assert torch.equal(draw.get_state(), before)


def test_a_class_that_lost_its_only_image_may_hold_one_again() -> None:
    draw = torch.Generator().manual_seed(0)
    assert held_out([[0], [1], []], 2, 2, 3, draw) in (0, 1)
