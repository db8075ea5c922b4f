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


def put(memory: Memory, entering: Sequence[int], items: int, draw: torch.Generator) -> list[int]:
    """Slots for some of the items of a batch: free ones, then those of random old items."""
    free = list(range(len(memory), min(memory.capacity, len(memory) + len(entering))))
    more = len(entering) - len(free)
    victims = policies.uniform(len(memory), more, draw) if more else []
    slots = [-1] * items
    for item, slot in zip(entering, free + victims, strict=False):
        slots[item] = slot
    return slots


def closest_of_each(distances: list[list[float]], labels: list[int]) -> list[int]:
    """The items that are the closest of their class to any of its centroids; one may be of several.

    >>> closest_of_each([[1, 2], [2, 3], [3, 1], [9, math.inf]], [0, 0, 0, 1])
    [0, 2, 3]
    """
    entering: set[int] = set()
    for label in dict.fromkeys(labels):
        own = [i for i, y in enumerate(labels) if y == label]
        for far in zip(*(distances[i] for i in own), strict=True):  # of one centroid
            entering |= {own[far.index(min(far))]} if min(far) < math.inf else set()
    return sorted(entering)


def first_of_class(order: Sequence[int], labels: Sequence[int], most: int) -> list[int]:
    """The first `most` items of every class in `order`."""
    left = dict.fromkeys(labels, most)
    entering = []
    for item in order:
        if left[labels[item]]:
            left[labels[item]] -= 1
            entering.append(item)
    return entering


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

    `admission`: as many as a reservoir takes; or, whatever the number of those that came, the
    closest item of every centroid (`printed`), or as many for every class as it has centroids
    (`closest`), for which random old ones make room: soon the newest classes fill the memory.
    `choice`: which ones: at `random`, the closest to the `centroids`, or any with the `components`
    taking turns.
    """
    slots, draw = list[int](), generators["memory"]
    if admission == "reservoir":
        slots = memory.reservoir_slots(len(labels), draw)
    # Drawn for every choice: only which items enter may depend on it, not what is drawn next.
    start = int(torch.randint(2**31, (), generator=draw))
    if choice == "components":  # whose turn it is counts, not how close an item is
        keys = torch.rand(len(labels), 1, generator=generators["method"]).flatten().tolist()
        for row, key in zip(distances, keys, strict=True):
            mine = row.index(min(row))
            row[:] = [key if k == mine else math.inf for k in range(len(row))]
    if admission == "printed":
        entering = closest_of_each(distances, labels)
        if choice == "random":  # as many of each class
            entering = _others(entering, labels, generators["method"])
        return put(memory, entering, len(labels), draw)
    if choice == "random":
        return slots
    order = by_centroids(distances, labels, start)
    if admission == "closest":
        entering = first_of_class(order, labels, len(distances[0]))
        return put(memory, entering, len(labels), draw)
    return in_order(slots, order)


def _others(entering: Sequence[int], labels: list[int], draw: torch.Generator) -> list[int]:
    """As many items of every class, at random."""
    found = []
    for label in dict.fromkeys(labels):
        own = [i for i, y in enumerate(labels) if y == label]
        chosen = policies.uniform(len(own), sum(labels[i] == label for i in entering), draw)
        found += [own[j] for j in chosen]
    return found
