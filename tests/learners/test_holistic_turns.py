"""The sixteen turns, pixel by pixel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ocil.errors import OcilError
from ocil.learners import holistic


@pytest.mark.parametrize("side", [4, 5])
def test_turns_against_numpy(side: int) -> None:
    x = torch.arange(2 * 3 * side * side).view(2, 3, side, side)
    found = holistic.turns(x).numpy()
    assert found.shape == (16, 2, 3, side, side)
    middle = side // 2
    for quarter in range(4):
        for k, (left, right) in enumerate(((0, 0), (1, 0), (1, 1), (0, 1))):
            for i in range(2):
                for c in range(3):
                    image = x[i, c].numpy()
                    halves = [image[:, :middle], image[:, middle:]]
                    halves = [
                        np.rot90(half, 2) if turned else half
                        for half, turned in zip(halves, (left, right), strict=True)
                    ]
                    wanted = np.rot90(np.concatenate(halves, 1), quarter)
                    assert (found[4 * quarter + k, i, c] == wanted).all()


def test_the_images_come_first_and_all_turns_differ() -> None:
    x = torch.rand(2, 1, 6, 6)
    found = holistic.turns(x)
    assert torch.equal(found[0], x)
    assert len(found.flatten(1).unique(dim=0)) == holistic.TURNS


@pytest.mark.parametrize("shape", [(3, 8, 6), (64,)])
def test_only_square_images_can_be_turned(learner: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(OcilError, match=r"ocm learns from images turned.*needs square"):
        learner("ocm", shape=shape)
    learner("ocm", shape=(1, 8, 8))
