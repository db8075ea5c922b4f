"""Who enters, who leaves, who is replayed: functions that choose indices and touch no images.

Each costs as much as the images it chooses, whatever the size of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def reservoir(seen: int, capacity: int, items: int, generator: torch.Generator) -> list[int]:
    """Slots for `items` new images, or -1 for "not kept" (Vitter 1985, algorithm R, exact).

    Item number n (counting from 1) is kept with probability min(1, capacity / n): while there is
    room it takes the next slot, afterwards j ~ U{0..n-1} and it takes slot j if j < capacity.
    One draw per item, also while there is room, so that the draws depend on the stream alone.
    """
    slots = []
    for u in torch.rand(items, dtype=torch.float64, generator=generator).tolist():
        slot = seen if seen < capacity else int(u * (seen + 1))
        slots.append(slot if slot < capacity else -1)
        seen += 1
    return slots


def uniform(count: int, wanted: int, generator: torch.Generator) -> list[int]:
    """`wanted` different numbers of 0..count-1, every subset equally likely (Floyd's algorithm).

    All of them, in order, if there are no more than wanted. The set is random, its order is not:
    who takes only the first of it shuffles it before.
    """
    if count <= wanted:
        return list(range(count))
    chosen: dict[int, None] = {}
    draws = torch.rand(wanted, dtype=torch.float64, generator=generator).tolist()
    for top, u in zip(range(count - wanted, count), draws, strict=True):
        pick = int(u * (top + 1))
        chosen[top if pick in chosen else pick] = None
    return list(chosen)


def evenly(count: int, wanted: int, generator: torch.Generator) -> list[int]:
    """`wanted` <= `count` of the numbers 0..count-1 at even distances, each equally likely.

    Systematic sampling: floor((i + u) count / wanted) for i = 0, 1, ... and one u ~ U[0, 1). What
    stands in blocks, such as the classes of a `balanced` draw, is there in proportion.
    """
    u = torch.rand((), dtype=torch.float64, generator=generator).item()
    return [int((i + u) * count / wanted) for i in range(wanted)]


def balanced(members: Sequence[list[int]], wanted: int, generator: torch.Generator) -> list[int]:
    """`wanted` different slots, spread over the classes as evenly as their sizes allow.

    members: the slots of each class that has any. The classes are put in random order (or, with
    more classes than images, a random choice of them is taken); each gives an equal share, the
    remainder goes to the first in that order, and a class with too few passes its rest on.
    """
    order = uniform(len(members), min(wanted, len(members)), generator)
    if len(order) == len(members):  # `uniform` returns all in order: shuffle them
        keys = torch.rand(len(order), dtype=torch.float64, generator=generator).tolist()
        order = [i for _, i in sorted(zip(keys, order, strict=True))]
    quota = fill([len(members[i]) for i in order], wanted)
    chosen = []
    for i, share in zip(order, quota, strict=True):
        chosen += [members[i][j] for j in uniform(len(members[i]), share, generator)]
    return chosen


def of_random_classes(
    members: Sequence[list[int]], wanted: int, generator: torch.Generator
) -> list[int]:
    """`wanted` different slots, for each of which a class is drawn: how many a class has varies.

    members: the slots of each class that has any. A class all of whose slots are taken is drawn no
    more; within a class every set of slots is as likely.
    """
    left, moved, shares = len(members), dict[int, int](), dict[int, int]()
    for u in torch.rand(wanted, dtype=torch.float64, generator=generator).tolist():
        if not left:
            break
        place = int(u * left)
        drawn = moved.get(place, place)
        shares[drawn] = shares.get(drawn, 0) + 1
        if shares[drawn] == len(members[drawn]):  # the last of those left takes its place
            left -= 1
            moved[place] = moved.get(left, left)
    chosen = []
    for i, share in shares.items():
        chosen += [members[i][j] for j in uniform(len(members[i]), share, generator)]
    return chosen


def fill(sizes: list[int], wanted: int) -> list[int]:
    """Equal shares with the rest of small classes passed on to the others.

    >>> fill([10, 2, 10], 11)
    [5, 2, 4]
    """
    shares = [0] * len(sizes)
    left, open_classes = min(wanted, sum(sizes)), list(range(len(sizes)))
    while left:
        each, extra = divmod(left, len(open_classes))
        for rank, i in enumerate(open_classes):
            # What is left over is dealt out last, or a class could get it twice.
            more = min(each or int(rank < extra), sizes[i] - shares[i])
            shares[i] += more
            left -= more
        open_classes = [i for i in open_classes if shares[i] < sizes[i]]
    return shares


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
