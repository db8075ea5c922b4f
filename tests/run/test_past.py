"""What a checkpoint holds has to fit the data it goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ocil.data import load
from ocil.errors import OcilError
from ocil.run import past
from ocil.run.checkpoint import Checkpoint
from ocil.run.folder import RunFolder
from ocil.session import State


@pytest.mark.parametrize(
    ("labels", "kind", "fits"),
    [
        ([0, 9], torch.uint8, True),
        ([], None, True),
        ([0, 10], torch.uint8, False),
        ([0, 9], torch.float32, False),
    ],
)
def test_labels_and_items_of_a_checkpoint_are_those_of_the_data(
    tmp_path: Path, labels: list[int], kind: torch.dtype | None, fits: bool
) -> None:
    tensors = {"learner.memory.column.x": torch.zeros(2, 1, 8, 8, dtype=kind)} if kind else {}
    found = Checkpoint(3, State(tensors, {"labels": labels}), {})
    dataset, folder = load("digits"), RunFolder(tmp_path)
    if fits:
        past._check_fits(found, dataset, folder)
    else:
        with pytest.raises(OcilError, match="not those of the data; delete it"):
            past._check_fits(found, dataset, folder)
