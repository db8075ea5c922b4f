"""A memory that is made anew at the end of a task: equal shares of all classes seen.

Functions that choose indices and touch no images, as in `policies`; they cost as much as the
memory and the task's images, once a task.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ocil.memory.policies import fill

Choose = Callable[[list[int], int], list[int]]  # items of a class, how many -> those, best first


def by_class(labels: Sequence[int], classes: int) -> list[list[int]]:
    """Positions of each class 0..classes-1.

    >>> by_class([1, 0, 1], 3)
    [[1], [0, 2], []]
    """
    found: list[list[int]] = [[] for _ in range(classes)]
    for position, label in enumerate(labels):
        found[label].append(position)
    return found


def exchange(
    held: list[list[int]],
    new: list[list[int]],
    capacity: int,
    choose: Choose,
    generator: torch.Generator,
) -> tuple[list[int], list[int]]:
    """Which new items enter which slots so that the classes share the capacity evenly.

    held: slots of each class, those that stay longest first; new: items of each class on offer. A
    class with too few passes its rest on, the remainder goes to classes drawn at random, and a
    class that comes back keeps what it has and fills up. Returns (items, their slots).

    >>> held, new = [[0, 1, 2], [3, 4, 5], []], [[], [], [0, 1, 2, 3]]
    >>> exchange(held, new, 6, lambda items, n: items[:n], torch.Generator())
    ([0, 1], [2, 5])
    """
    quota = _shares([len(h) + len(n) for h, n in zip(held, new, strict=True)], capacity, generator)
    entering, leaving = [], []
    for slots, items, share in zip(held, new, quota, strict=True):
        leaving += slots[share:]
        room = min(share - len(slots), len(items))
        if room > 0:
            entering += choose(items, room)
    filled = sum(map(len, held))
    free = range(filled, filled + len(entering) - len(leaving))
    return entering, [*leaving, *free]


def _shares(sizes: list[int], capacity: int, generator: torch.Generator) -> list[int]:
    order = torch.randperm(len(sizes), generator=generator).tolist()
    shares = [0] * len(sizes)
    for c, share in zip(order, fill([sizes[c] for c in order], capacity), strict=True):
        shares[c] = share
    return shares


def shuffled(items: list[int], generator: torch.Generator) -> list[int]:
    """The same items in random order."""
    return [items[i] for i in torch.randperm(len(items), generator=generator).tolist()]


def herding(z: Tensor, count: int) -> list[int]:
    """`count` different rows of z (n, d), of unit length, whose mean follows that of all.

    Row number k is the one that brings the mean of the first k closest to the mean mu of all
    (Rebuffi et al., iCaRL, 2017); for rows of unit length that is argmax_i z_i.(k mu - sum of the
    rows before).

    >>> herding(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), 2)
    [1, 0]
    """
    mean, chosen = z.mean(0), []
    wanted, taken = mean.clone(), torch.zeros(len(z), dtype=torch.bool, device=z.device)
    for _ in range(count):
        pick = (z @ wanted).masked_fill_(taken, -torch.inf).argmax()
        taken[pick] = True
        wanted += mean - z[pick]
        chosen.append(pick)
    return torch.stack(chosen).tolist() if chosen else []
