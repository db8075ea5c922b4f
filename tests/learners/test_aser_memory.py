"""Draws from parts of the memory: who can be drawn, and that all are equally likely."""

from __future__ import annotations

from collections import Counter

import torch
from scipy.stats import chisquare

from ocil.learners import aser
from ocil.memory import policies

MEMBERS = [[5, 0, 7], [], [1, 8], [2, 3, 4, 6]]
LABELS = [0, 2, 3, 3, 3, 0, 3, 0, 2]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_of_classes_draws_uniformly_from_all_their_slots() -> None:
    draw, counts = generator(0), Counter[int]()
    for _ in range(2000):
        chosen = policies.of_classes(MEMBERS, [0, 1, 3, 9], 2, draw)
        assert len(set(chosen)) == 2
        counts.update(chosen)
    assert set(counts) == {5, 0, 7, 2, 3, 4, 6}
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_of_classes_gives_all_there_are_and_none_of_none() -> None:
    assert policies.of_classes(MEMBERS, [3, 2], 99, generator(0)) == [2, 3, 4, 6, 1, 8]
    assert policies.of_classes(MEMBERS, [1], 5, generator(0)) == []
    assert policies.of_classes(MEMBERS, [], 5, generator(0)) == []
    assert policies.of_classes(MEMBERS, [0], 0, generator(0)) == []


def test_outside_draws_uniformly_from_the_free_slots() -> None:
    taken, draw, counts = [0, 4, 5, 9], generator(1), Counter[int]()
    for _ in range(2000):
        chosen = aser.sample_excluding(10, taken, 2, draw)
        assert len(set(chosen)) == 2
        counts.update(chosen)
    assert set(counts) == {1, 2, 3, 6, 7, 8}
    assert chisquare(list(counts.values())).pvalue > 1e-3


def test_outside_of_everything_is_nothing() -> None:
    assert aser.sample_excluding(3, [2, 0, 1], 2, generator(0)) == []
    assert aser.sample_excluding(3, [], 5, generator(0)) == [0, 1, 2]


def test_in_two_divides_at_random_and_evenly_over_classes() -> None:
    draw, counts = generator(2), Counter[int]()
    for _ in range(2000):
        first, second = aser.split_balanced([5, 0, 7, 1, 8, 2, 3, 4], LABELS, 3, draw)
        assert sorted(first + second) == [0, 1, 2, 3, 4, 5, 7, 8]
        assert Counter(LABELS[slot] for slot in first) == {0: 1, 2: 1, 3: 1}
        counts.update(first)
    for own in ([5, 0, 7], [1, 8], [2, 3, 4]):
        assert chisquare([counts[slot] for slot in own]).pvalue > 1e-3


def test_in_two_fills_the_first_before_the_second() -> None:
    first, second = aser.split_balanced([5, 1, 2], LABELS, 9, generator(0))
    assert sorted(first) == [1, 2, 5] and second == []


def test_won_exchanges_as_many_as_are_better() -> None:
    # rivals 0..2 in slots 70, 50, 90; new images 3..5 of which 5 and 4 are among the best three
    assert aser.replacement_slots([5, 1, 4, 3, 2, 0], [70, 50, 90]) == [-1, 70, 90]
    assert aser.replacement_slots([0, 1, 2], [70, 50]) == [-1]
    assert aser.replacement_slots([1, 0], []) == [-1, -1]
