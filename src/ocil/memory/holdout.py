"""A small part of the memory that is never replayed: the first images of each class."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ocil.memory.matching import mark
from ocil.memory.memory import Memory


class HeldOut(Memory):
    """A memory that takes the first images of each class and can tell them when they come again."""

    _marks: set[bytes] | None = None  # of the images held, made when wanted

    def hold(self, x: Tensor, y: Tensor, classes: int, generator: torch.Generator) -> bool:
        """Hold an image x of class y out if its class has too few; says whether it was."""
        slot = held_out(self.members, int(y), self.capacity, classes, generator)
        if slot >= 0:
            self.write([slot], x[None], y[None])
            self.seen = max(self.seen, len(self))
            self._marks = None
        return slot >= 0

    def __contains__(self, image: Tensor) -> bool:
        if self._marks is None:
            images = self.columns["x"][: len(self)] if len(self) else ()
            self._marks = {mark(held) for held in images}
        return mark(image) in self._marks

    def _free(self, slots: Sequence[int], offered: int) -> None:
        self._marks = None
        super()._free(slots, offered)

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        self._marks = None
        super().load_state_dict(state, classes)


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
