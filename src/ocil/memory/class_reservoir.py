"""A reservoir for each class, all of the same size as far as the stream allows."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ocil.memory.memory import Memory


class ClassReservoir:
    """Decides who enters a memory so that the classes share it equally.

    While there is room, everybody enters. Afterwards a class that holds less than its share,
    capacity / classes seen, takes a random slot of the largest class, and any other keeps a
    reservoir sample of its own images: the n-th of a class that holds k enters with probability
    k / n, in a random slot of that class. `met` counts the images of each class offered so far.

    >>> memory, reservoir = Memory(capacity=4), ClassReservoir()
    >>> x, y = torch.zeros(5, 1, 8, 8), torch.tensor([0, 0, 0, 0, 1])
    >>> reservoir.offer(memory, x, y, torch.Generator())
    >>> [len(slots) for slots in memory.members], reservoir.met
    ([3, 1], [4, 1])
    """

    def __init__(self, met: Sequence[int] = ()) -> None:
        self.met = list(met)

    def offer(
        self, memory: Memory, x: torch.Tensor, y: torch.Tensor, generator: torch.Generator
    ) -> None:
        """Offer a batch, image by image: who comes first may have to leave again."""
        labels = y.tolist()
        self.met += [0] * (max(labels) + 1 - len(self.met))
        draws = torch.rand(len(labels), 2, dtype=torch.float64, generator=generator).tolist()
        memory.seen += len(labels)
        for i, (label, (u, v)) in enumerate(zip(labels, draws, strict=True)):
            self.met[label] += 1
            slot = self._slot(memory, label, u, v)
            memory.write([slot], x[i : i + 1], y[i : i + 1])

    def _slot(self, memory: Memory, label: int, u: float, v: float) -> int:
        """The slot for an image of class `label`, or -1; u and v are uniform in [0, 1)."""
        if len(memory) < memory.capacity:
            return len(memory)
        own = memory.members[label] if label < len(memory.members) else []
        if len(own) < max(1, memory.capacity // len(self.met)):
            own = max(memory.members, key=len)
        elif u >= len(own) / self.met[label]:
            return -1
        return own[int(v * len(own))]
