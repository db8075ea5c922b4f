"""Joined memories: a uniform choice of both streams."""

from __future__ import annotations

import torch

from ocil.memory import Memory
from ocil.memory.joining import join


def filled(capacity: int, count: int, start: int, seed: int) -> Memory:
    """A reservoir of the numbers from `start` on, their classes 0 and 1 in turn."""
    memory = Memory(capacity)
    x = torch.arange(start, start + count, dtype=torch.float32)[:, None]
    memory.reservoir(x, torch.arange(count) % 2, torch.Generator().manual_seed(seed))
    return memory


def test_every_image_of_both_streams_is_kept_with_equal_probability() -> None:
    kept = torch.zeros(40)
    for seed in range(2000):
        a, b = filled(8, 30, 0, 2 * seed), filled(8, 10, 30, 2 * seed + 1)
        join(a, b, [2, 0], torch.Generator().manual_seed(seed))
        assert (len(a), a.seen, len(b)) == (8, 40, 8)
        kept[a.columns["x"][:8, 0].long()] += 1
    share = kept / 2000
    # 0.2 for each, give or take four deviations
    assert (share - 0.2).abs().max() < 4 * (0.2 * 0.8 / 2000) ** 0.5
    assert abs(share[30:].mean() - 0.2) < 0.015


def test_all_is_kept_if_there_is_room_and_shares_are_hypergeometric() -> None:
    shares = []
    for seed in range(3000):
        a, b = filled(6, 6, 0, seed), filled(6, 6, 100, seed)
        join(a, b, [0, 1], torch.Generator().manual_seed(seed))
        shares.append(int((a.columns["x"][:, 0] < 100).sum()))
    found = torch.tensor(shares).double()
    assert abs(found.mean() - 3) < 0.1
    assert abs(found.var() - 6 * 0.25 * 6 / 11) < 0.1  # with replacement it would be 1.5


def test_classes_are_renamed_and_the_result_is_sound() -> None:
    a, b = filled(20, 6, 0, 0), filled(3, 9, 100, 1)
    join(a, b, [5, 1], torch.Generator())
    again = Memory(20)
    again.load_state_dict(a.state_dict(), 6)
    for x, y in zip(a.columns["x"][: len(a), 0].tolist(), a.labels, strict=True):
        assert y == (x % 2 if x < 100 else (5, 1)[int(x) % 2])
    assert (len(a), a.seen) == (9, 15)


def test_the_draw_is_that_of_the_seed_and_empty_memories_join() -> None:
    def held(seed: int) -> list[float]:
        a = filled(8, 30, 0, 1)
        join(a, filled(8, 30, 30, 2), [0, 1], torch.Generator().manual_seed(seed))
        return a.columns["x"][:, 0].tolist()

    assert held(3) == held(3) != held(4)
    empty = Memory(8)
    join(empty, Memory(8), [], torch.Generator())
    assert len(empty) == 0
    join(empty, filled(8, 5, 0, 0), [0, 1], torch.Generator())
    assert len(empty) == empty.seen == 5
