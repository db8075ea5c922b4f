"""Learners small enough to follow by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ocil import rng
from ocil.fields import from_mapping
from ocil.learners import registry
from ocil.learners.learner import Learner
from ocil.stream import Batch

SHAPE = (1, 4, 4)


@pytest.fixture
def learner() -> Callable[..., Learner]:
    def make(method: str = "er", shape: tuple[int, ...] = SHAPE, **changes: Any) -> Learner:
        kind = registry.get(method)
        values = {"width": 6, "lr": 0.01, "seed": 3, "memory": 20, "replay": 7, "batch": 5}
        if method == "finetune":
            values = {"width": 6, "lr": 0.01, "seed": 3, "batch": 5}
        settings = from_mapping(kind.settings_type, values | changes)
        return kind(settings, shape, rng.generators(settings.seed))

    return make


@pytest.fixture
def batches() -> Callable[..., list[Batch]]:
    """`count` batches of 5; two classes a task of three batches, ids in order of arrival."""

    def make(count: int, shape: tuple[int, ...] = SHAPE) -> list[Batch]:
        draw = torch.Generator().manual_seed(11)
        found = []
        for step in range(count):
            x = torch.randint(256, (5, *shape), dtype=torch.uint8, generator=draw)
            y = torch.tensor([0, 1, 0, 1, 1]) + 2 * (step // 3)
            found.append(Batch(x, y, step, step // 3))
        return found

    return make
