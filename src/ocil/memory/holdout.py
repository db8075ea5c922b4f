"""A small part of the memory that is never replayed: the first images of each class."""

from __future__ import annotations

import torch


def held_out(
    members: list[list[int]], label: int, capacity: int, classes: int, generator: torch.Generator
) -> int:
    """Slot for an image of class `label` among those held out, or -1 if its class has enough.

    Each of the `classes` seen so far may hold capacity // classes images, at least one: the first
    that arrive. While there is room an image takes the next slot; then it takes the latest of the
    class that holds most, of equals a random one, so that old classes shrink as new ones come.

    >>> held_out([[0, 1, 4], [2, 3]], 2, capacity=5, classes=3, generator=torch.Generator())
    4
    """
    if label < len(members) and len(members[label]) >= max(1, capacity // classes):
        return -1
    if (filled := sum(map(len, members))) < capacity:
        return filled
    most = max(map(len, members))
    largest = [slots for slots in members if len(slots) == most]
    u = torch.rand((), dtype=torch.float64, generator=generator).item()
    return largest[int(u * len(largest))][-1]
