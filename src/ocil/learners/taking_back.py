"""What a learner has learned is taken back: a class, samples, wrong labels.

What all classes share remains: trained weights, covariances of methods without exact sums, a
finished encoder.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.learners.learner import Learner
from ocil.memory import Memory


def forget(learner: Learner, label: int) -> None:
    """Take class `label` out; the ids above it move down by one."""
    learner.cache.clear()
    learner.forget(label)
    learner.classes -= 1
    learner.known = learner.classes
    learner.correct(torch.zeros(0, *learner.shape), torch.zeros(0, dtype=torch.int64))


def remove(learner: Learner, x: Tensor, y: Tensor) -> None:
    """Take samples x (n, ...) of classes y (n,) back, out of memories and exact sums."""
    learner.cache.clear()
    x, y = x.to(learner.device), y.to(learner.device)
    for memory in _memories(learner):
        memory.remove(x, y)
    learner.correct(x, y)


def relabel(learner: Learner, x: Tensor, y: Tensor, new: Tensor) -> None:
    """Samples x (n, ...) that were learned as of classes y (n,) are of classes `new` (n,)."""
    learner.add_classes(new)
    x, y, new = (part.to(learner.device) for part in (x, y, new))
    for memory in _memories(learner):
        memory.relabel(x, y, new)
    learner.correct(x, y, new)


def _memories(learner: Learner) -> list[Memory]:
    return [part for part in learner.parts.values() if isinstance(part, Memory)]
