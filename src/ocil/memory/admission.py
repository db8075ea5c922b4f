"""Which items of a batch get a slot, where the centroids of their classes have a say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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


def admit_closest(
    memory: Memory, order: Sequence[int], labels: Sequence[int], most: int, draw: torch.Generator
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
    victims = policies.uniform(len(memory), more, draw) if more else []
    slots = [-1] * len(labels)
    for item, slot in zip(entering, free + victims, strict=False):
        slots[item] = slot
    return slots


def by_centroids(distances: list[list[float]], labels: list[int], start: int = 0) -> list[int]:
    """Batch items in the order in which centroids ask for them.

    distances[i][k] is how far item i is from centroid k of its own class. The centroids of a class
    take turns, each taking the closest item left, and the classes take turns as well: the first m
    of the order cover classes and their centroids as evenly as m allows. `start` says whose turn
    is first: where a batch gives one item only, it must not always be that of the same centroid.

    >>> by_centroids([[1, 9], [2, 8], [3, 1]], [0, 0, 0])
    [0, 2, 1]
    """
    queues = []
    classes = list(dict.fromkeys(labels))
    lead = start % len(classes)
    for label in classes[lead:] + classes[:lead]:
        left, queue, turn = [i for i, y in enumerate(labels) if y == label], [], start
        while left:
            centroid = turn % len(distances[left[0]])
            nearest = min(left, key=lambda i: distances[i][centroid])
            queue.append(nearest)
            left.remove(nearest)
            turn += 1
        queues.append(queue)
    longest = max(map(len, queues))
    return [queue[rank] for rank in range(longest) for queue in queues if rank < len(queue)]


def choose(
    memory: Memory,
    distances: list[list[float]],
    labels: list[int],
    choice: str,
    admission: str,
    generators: Mapping[str, torch.Generator],
) -> list[int]:
    """Slots for the items of a batch; distances[i][k] as in `by_centroids`, unused at random.

    `admission`: as many as a reservoir takes, or the `closest` of every centroid (printed).
    `choice`: which ones: at `random`, the closest to the `centroids`, or any with the `components`
    taking turns.
    """
    slots, draw = list[int](), generators["memory"]
    if admission == "reservoir":
        slots = policies.reservoir(memory.seen, memory.capacity, len(labels), draw)
    # Drawn for every choice: only which items enter may depend on it, not what is drawn next.
    start = int(torch.randint(2**31, (), generator=draw))
    if choice == "random":
        return slots
    if choice == "components":  # whose turn it is counts, not how close an item is
        keys = torch.rand(len(labels), 1, generator=generators["method"]).flatten().tolist()
        for row, key in zip(distances, keys, strict=True):
            mine = row.index(min(row))
            row[:] = [key if k == mine else math.inf for k in range(len(row))]
    order = by_centroids(distances, labels, start)
    if admission == "closest":
        return admit_closest(memory, order, labels, len(distances[0]), draw)
    return in_order(slots, order)
