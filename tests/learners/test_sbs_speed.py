"""Learning speed and its two tails."""

from __future__ import annotations

import torch

from ocil.learners import sbs


def test_what_is_left_is_of_middling_speed() -> None:
    speeds = [0.9, 0.1, 0.5, 0.3, 0.7, 0.6, 0.8, 0.2, 0.4, 0.0]
    gone = sbs.tails(speeds, [0.0] * 10, quick=0.3, slow=0.2)
    left = sorted(s for i, s in enumerate(speeds) if i not in gone)
    assert left == [0.2, 0.3, 0.4, 0.5, 0.6]


def test_each_tail_alone() -> None:
    speeds = [0.9, 0.1, 0.5, 0.3, 0.7]
    assert sbs.tails(speeds, [0.0] * 5, quick=0.4, slow=0.0) == [4, 0]
    assert sbs.tails(speeds, [0.0] * 5, quick=0.0, slow=0.4) == [1, 3]
    assert sbs.tails(speeds, [0.0] * 5, quick=0.0, slow=0.0) == []
    assert sorted(sbs.tails(speeds, [0.0] * 5, quick=0.5, slow=0.5)) == [0, 1, 3, 4]


def test_shares_are_rounded_down() -> None:
    assert len(sbs.tails([0.1, 0.2, 0.3, 0.4], [0.0] * 4, quick=0.2, slow=0.2)) == 0
    # but not because 100 * 0.29 is 28.999999999999996 in floating point
    assert len(sbs.tails([0.0] * 100, [0.0] * 100, 0.29, 0.0)) == 29
    assert len(sbs.tails([0.0] * 100, [0.0] * 100, 0.0, 0.29)) == 29


def test_ties_decide_between_equal_speeds() -> None:
    assert sbs.tails([0.5] * 5, [0.3, 0.9, 0.1, 0.5, 0.7], quick=0.2, slow=0.2) == [2, 1]


def test_speed_of_few_looks_is_near_one_half() -> None:
    found = sbs.learning_speed(torch.tensor([1.0, 0.0, 8.0]), torch.tensor([1, 0, 8]))
    torch.testing.assert_close(found, torch.tensor([2 / 3, 1 / 2, 9 / 10]))
