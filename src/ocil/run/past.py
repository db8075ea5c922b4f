"""What a resumed run takes up from before: the evaluations and diagnostics among its events."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from ocil.data import Dataset
from ocil.errors import OcilError
from ocil.files import canonical
from ocil.run.checkpoint import Checkpoint
from ocil.run.folder import RunFolder
from ocil.run.reading import evaluation_is_sound
from ocil.session import State

Row = dict[str, Any]


def events(
    folder: RunFolder, found: Checkpoint, frame: Row, due: set[tuple[int, str]]
) -> tuple[list[Row], list[Row]]:
    """Evaluations and diagnostics up to a checkpoint; what a killed run wrote twice counts once.

    `frame` has the tasks, read-outs and class names they must fit, `due` those (step, images) that
    must be there. Altered events are refused: the record is made of them.
    """
    past: dict[str, dict[tuple[int, str, str], Row]] = {"evaluation": {}, "inside": {}}
    for event in folder.read_events():
        kind, at = event.get("event"), event.get("step")
        sound = kind == "inside" or (kind == "evaluation" and evaluation_is_sound(event, frame))
        if sound and isinstance(at, int) and at <= found.step:
            key = at, str(event.get("images")), str(event.get("readout"))
            past[kind][key] = {k: v for k, v in event.items() if k != "event"}
    again = f"delete {folder.checkpoints} and resume to learn from the start again."
    if missing := due - {key[:2] for key in past["evaluation"]}:
        raise OcilError(
            f"{folder.events} lacks {len(missing)} evaluations made before step {found.step}; "
            + again
        )
    evaluations, inside = (
        [row for _, row in sorted(rows.items(), key=lambda item: item[0][0])]
        for rows in past.values()
    )
    written = events_sha256(evaluations + inside)
    if found.progress.get("told", written) != written:  # older checkpoints say nothing
        raise OcilError(f"{folder.events} was altered before step {found.step}; {again}")
    return evaluations, inside


def events_sha256(rows: Sequence[Row]) -> str:
    """A sum over the result so far, kept in the checkpoint."""
    return hashlib.sha256(b"\n".join(sorted(map(canonical, rows)))).hexdigest()


def check_fits(state: State, dataset: Dataset, folder: RunFolder) -> None:
    """Refuse a state whose labels or items are not those of the data."""
    known = range(len(dataset.class_names))
    held = state.tensors.get("learner.memory.column.x")
    kind = torch.from_numpy(dataset.train_images[:0].copy()).dtype
    if any(label not in known for label in state.scalars["labels"]) or (
        held is not None and held.dtype != kind
    ):
        raise OcilError(
            f"The newest checkpoint in {folder.checkpoints} holds labels or items that are not "
            "those of the data; delete it to use the one before."
        )
