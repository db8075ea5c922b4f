"""A memory made anew at the end of a task: shares, who leaves, and herding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ocil.memory import exemplars


def first(items: list[int], count: int) -> list[int]:
    return items[:count]


def gen(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def after(held, items, slots, new) -> list[int]:
    """Images of each class once the exchange is done; every slot once, none left out."""
    owner = {slot: c for c, own in enumerate(held) for slot in own}
    entering = {item: c for c, own in enumerate(new) for item in own}
    assert len(set(slots)) == len(slots) == len(items) == len(set(items))
    owner |= {slot: entering[item] for item, slot in zip(items, slots, strict=True)}
    assert sorted(owner) == list(range(len(owner)))
    return [list(owner.values()).count(c) for c in range(len(held))]


def test_classes_share_the_capacity_evenly():
    held = [list(range(0, 10)), list(range(10, 20)), [], []]
    new = [[], [], list(range(30)), list(range(30, 60))]
    items, slots = exemplars.exchange(held, new, 20, first, gen())
    assert after(held, items, slots, new) == [5, 5, 5, 5]
    assert items == [0, 1, 2, 3, 4, 30, 31, 32, 33, 34]
    assert slots == [5, 6, 7, 8, 9, 15, 16, 17, 18, 19]  # those that stay longest are first


def test_what_does_not_divide_goes_to_classes_at_random():
    held, new = [[], [], []], [list(range(9)), list(range(9, 18)), list(range(18, 27))]
    seen = set()
    for seed in range(30):
        items, slots = exemplars.exchange(held, new, 10, first, gen(seed))
        seen.add(tuple(after(held, items, slots, new)))
    assert seen == {(4, 3, 3), (3, 4, 3), (3, 3, 4)}


def test_a_small_class_passes_its_rest_on():
    held, new = [[0], []], [[], list(range(20))]
    items, slots = exemplars.exchange(held, new, 10, first, gen())
    assert after(held, items, slots, new) == [1, 9]


def test_room_enough_takes_all():
    held, new = [[0, 1], []], [[], [0, 1, 2]]
    assert exemplars.exchange(held, new, 10, first, gen()) == ([0, 1, 2], [2, 3, 4])


def test_more_classes_than_room():
    held, new = [[0], [1], [], []], [[], [], [0], [1]]
    for seed in range(10):
        items, slots = exemplars.exchange(held, new, 2, first, gen(seed))
        counts = after(held, items, slots, new)
        assert sum(counts) == 2 and max(counts) == 1


def test_a_class_that_comes_back_keeps_what_it_has_and_fills_up():
    held, new = [[0, 1], [2, 3]], [[0, 1, 2], []]
    items, slots = exemplars.exchange(held, new, 6, first, gen())
    assert (items, slots) == ([0, 1], [4, 5])


def test_herding_follows_the_mean_step_by_step():
    z = F.normalize(torch.randn(20, 4, generator=gen(1), dtype=torch.float64) + 0.5, dim=1)
    chosen: list[int] = []
    for k in range(1, 13):
        gaps = {
            i: float((z.mean(0) - (z[chosen].sum(0) + z[i]) / k).norm())
            for i in range(20)
            if i not in chosen
        }
        chosen.append(min(gaps, key=lambda i: gaps[i]))
    assert exemplars.herding(z, 12) == chosen


@pytest.mark.parametrize("count", [0, 3])
def test_herding_none_and_all(count):
    z = F.normalize(torch.randn(3, 4, generator=gen(1)), dim=1)
    assert sorted(exemplars.herding(z, count)) == list(range(count))
