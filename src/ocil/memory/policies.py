"""Who enters, who leaves, who is replayed: functions that choose indices and touch no images.

Each costs as much as the images it chooses (`of_classes`: and the classes it is given), whatever
the size of the memory.
"""

import bisect
import itertools
from collections.abc import Iterable, Sequence

import torch


def reservoir(
    seen: int, capacity: int, items: int, generator: torch.Generator, filled: int | None = None
) -> list[int]:
    """Slots for `items` new images, or -1 for "not kept" (Vitter 1985, algorithm R, exact).

    Item number n (counting from 1) is kept with probability min(1, capacity / n): while there is
    room it takes the next slot, afterwards j ~ U{0..n-1} and it takes slot j if j < capacity.
    One draw per item, also while there is room, so that the draws depend on the stream alone.
    `filled`: slots in use, where some were freed again; else all that the stream could fill.
    """
    slots, filled = [], seen if filled is None else filled
    for u in torch.rand(items, dtype=torch.float64, generator=generator).tolist():
        slot = filled if filled < capacity else int(u * (seen + 1))
        slots.append(slot if slot < capacity else -1)
        seen, filled = seen + 1, filled + 1
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


def systematic_sample(count: int, wanted: int, generator: torch.Generator) -> list[int]:
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
    count = len(members)
    order = uniform(count, min(wanted, count), generator)
    if len(order) == count:  # `uniform` returns all in order: shuffle them
        keys = torch.rand(len(order), dtype=torch.float64, generator=generator).tolist()
        order = [i for _, i in sorted(zip(keys, order, strict=True))]
    slots, chosen = [members[i] for i in order], []
    for own, share in zip(slots, fill([len(own) for own in slots], wanted), strict=True):
        chosen += [own[j] for j in uniform(len(own), share, generator)]
    return chosen


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
    for number in uniform(ends[-1], wanted, draw):
        which = bisect.bisect_right(ends, number) - 1
        chosen.append(lists[which][number - ends[which]])
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
