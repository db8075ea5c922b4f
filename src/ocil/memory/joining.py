"""Two memories become one: a draw weighted with what each has seen."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ocil.memory.memory import Memory


def join(mine: Memory, other: Memory, ids: Sequence[int], generator: torch.Generator) -> None:
    """Fill `mine` with images of both; class c of the other is ours ids[c].

    If each holds a uniform choice of its stream, the result is one of both streams (of n = seen
    images each): how many come from either is hypergeometric, which ones is uniform. Both hold the
    same columns.

    >>> a, b = Memory(2), Memory(2)
    >>> for memory, value in ((a, 1.0), (b, 2.0)):
    ...     x, y = torch.full((2, 1), value), torch.zeros(2, dtype=torch.int64)
    ...     memory.reservoir(x, y, torch.Generator())
    >>> join(a, b, [1], torch.Generator().manual_seed(0))
    >>> len(a), a.seen
    (2, 4)
    """
    room = min(mine.capacity, len(mine) + len(other))
    ours = _share((mine.seen, other.seen), (len(mine), len(other)), room, generator)
    parts = []
    for memory, wanted in ((mine, ours), (other, room - ours)):
        order = torch.randperm(len(memory), generator=generator).tolist()
        parts.append(memory.read(sorted(order[:wanted])))
    parts[1] |= {"y": torch.tensor(ids, device=mine.device)[parts[1]["y"]]} if parts[1] else {}
    held = [part for part in parts if part]
    seen = mine.seen + other.seen
    Memory.load_state_dict(mine, Memory(mine.capacity).state_dict(), 0)
    mine.seen = seen
    if room:
        mine.write(range(room), **{k: torch.cat([part[k] for part in held]) for k in held[0]})


def _share(
    seen: tuple[int, int], held: tuple[int, int], room: int, generator: torch.Generator
) -> int:
    """How many of `room` images drawn from two streams without replacement are of the first."""
    left, taken = [max(n, m) for n, m in zip(seen, held, strict=True)], [0, 0]
    for u in torch.rand(room, dtype=torch.float64, generator=generator).tolist():
        which = int(u * sum(left) >= left[0])
        if taken[which] == held[which]:  # a memory smaller than its share
            which = 1 - which
        taken[which] += 1
        left[which] -= 1
    return taken[0]
