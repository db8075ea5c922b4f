"""Draws from parts of the memory: of some classes, outside of some slots, in two disjoint sets.

As in `policies`, each costs as much as the images it chooses (`of_classes`: and the classes it is
given), whatever the size of the memory.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

import torch

from ocil.memory import policies


def of_classes(
    members: Sequence[Sequence[int]], classes: Iterable[int], wanted: int, draw: torch.Generator
) -> list[int]:
    """`wanted` different slots, uniformly from all those of the classes (all if there are fewer).

    members[c] lists the slots of class c; a class beyond its end has none. Their order says
    something of the class: shuffle them before taking only the first.

    >>> of_classes([[4, 1], [0], [2, 3]], [0, 2, 7], 9, torch.Generator())
    [4, 1, 2, 3]
    """
    lists = [members[c] for c in classes if c < len(members)]
    ends = list(itertools.accumulate(map(len, lists), initial=0))
    chosen = []
    for number in policies.uniform(ends[-1], wanted, draw):
        which = bisect.bisect_right(ends, number) - 1
        chosen.append(lists[which][number - ends[which]])
    return chosen


def sample_excluding(
    count: int, taken: Iterable[int], wanted: int, draw: torch.Generator
) -> list[int]:
    """`wanted` different slots of 0..count-1 that are not taken, every set of them as likely.

    >>> sample_excluding(6, [1, 4, 0], 9, torch.Generator())
    [2, 3, 5]
    """
    # The r-th free slot is r plus the taken ones before it; those are the ones whose own number
    # of free slots before them is at most r.
    free_before = [slot - rank for rank, slot in enumerate(sorted(taken))]
    picks = policies.uniform(count - len(free_before), wanted, draw)
    return [r + bisect.bisect_right(free_before, r) for r in picks]


def split_balanced(
    slots: Sequence[int], labels: Sequence[int], first: int, draw: torch.Generator
) -> tuple[list[int], list[int]]:
    """Divide a class-balanced draw at random into `first` slots, balanced themselves, and the rest.

    labels[slot] is the class. In effect two balanced draws, the second from what the first left.
    """
    groups: dict[int, list[int]] = {}
    for slot in slots:
        groups.setdefault(labels[slot], []).append(slot)
    chosen = policies.balanced(list(groups.values()), first, draw)
    taken = set(chosen)
    return chosen, [slot for slot in slots if slot not in taken]


def replacement_slots(order: Sequence[int], rivals: Sequence[int]) -> list[int]:
    """Slots for new images that outrank rivals of the memory, -1 for one that does not.

    order ranks the numbers 0..r-1 of the r rivals (memory slots) and r, r+1, ... of the new images,
    best first. The best r stay: a new image among them takes the slot of a rival that is not.

    >>> replacement_slots([3, 0, 2, 1, 4], rivals=[70, 50, 90])  # image 3 is among the best three
    [50, -1]
    """
    r = len(rivals)
    entering = [i - r for i in order[:r] if i >= r]
    leaving = [rivals[i] for i in order[r:] if i < r]
    slots = [-1] * (len(order) - r)
    for item, slot in zip(entering, leaving, strict=True):
        slots[item] = slot
    return slots
