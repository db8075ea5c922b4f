"""Which items of a batch get a slot, once somebody has put them in an order of preference."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ocil.memory import policies
from ocil.memory.memory import Memory


def in_order(slots: Sequence[int], order: Sequence[int]) -> list[int]:
    """The slots that a reservoir gives to a batch (-1 is none), dealt to the first of `order`.

    >>> in_order([-1, 7, -1, 3], [2, 0, 1, 3])
    [3, -1, 7, -1]
    """
    dealt = [-1] * len(slots)
    taken = [slot for slot in slots if slot >= 0]
    for item, slot in zip(order, taken, strict=False):
        dealt[item] = slot
    return dealt


def flood(
    memory: Memory,
    order: Sequence[int],
    labels: Sequence[int],
    most: int,
    generator: torch.Generator,
) -> list[int]:
    """Slots for the first `most` items of every class in `order`, without asking how many came.

    When the memory is full they take the places of random old ones: soon it holds the newest
    classes only, which is what this rule is kept to show.
    """
    left = dict.fromkeys(labels, most)
    entering = []
    for item in order:
        if left[labels[item]]:
            left[labels[item]] -= 1
            entering.append(item)
    free = list(range(len(memory), min(memory.capacity, len(memory) + len(entering))))
    more = len(entering) - len(free)
    victims = policies.uniform(len(memory), more, generator) if more else []
    slots = [-1] * len(labels)
    for item, slot in zip(entering, free + victims, strict=False):
        slots[item] = slot
    return slots
