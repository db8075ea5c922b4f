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
from ocil.stream import Stream

Row = dict[str, Any]


def events(
    folder: RunFolder, found: Checkpoint, dataset: Dataset, stream: Stream, readouts: Sequence[str]
) -> tuple[list[Row], list[Row]]:
    """Evaluations and diagnostics up to a checkpoint; what a killed run wrote twice counts once.

    Missing or altered ones are refused: the record is made of them.
    """
    _check_fits(found, dataset, folder)
    frame = {"class_names": dataset.class_names, "tasks": stream.tasks, "readouts": readouts}
    past: dict[Any, dict[tuple[int, str, str], Row]] = {"evaluation": {}, "inside": {}}
    for event in folder.read_events():
        kind, at = event.get("event"), event.get("step")
        sound = kind == "inside" or (kind == "evaluation" and evaluation_is_sound(event, frame))
        if sound and isinstance(at, int) and at <= found.step:
            key = at, str(event.get("images")), str(event.get("readout"))
            past[kind][key] = {k: v for k, v in event.items() if k != "event"}
    again = f"delete {folder.checkpoints} and resume to learn from the start again."
    every = stream.settings.eval_every
    due = {(step, "probe") for step in range(every, found.step + 1, every)} if every else set()
    due |= {(step, "all") for step in stream.task_ends() if step <= found.step}
    if missing := due - {key[:2] for key in past["evaluation"]}:
        lost = f"lacks {len(missing)} evaluations made before step {found.step}"
        raise OcilError(f"{folder.events} {lost}; {again}")
    in_order = (sorted(rows.items(), key=lambda row: row[0][0]) for rows in past.values())
    evaluations, inside = ([row for _, row in rows] for rows in in_order)
    written = events_sha256(evaluations + inside)
    if found.progress.get("told", written) != written:  # older checkpoints say nothing
        raise OcilError(f"{folder.events} was altered before step {found.step}; {again}")
    return evaluations, inside


def events_sha256(rows: Sequence[Row]) -> str:
    """A sum over the result so far, kept in the checkpoint."""
    return hashlib.sha256(b"\n".join(sorted(map(canonical, rows)))).hexdigest()


def _check_fits(found: Checkpoint, dataset: Dataset, folder: RunFolder) -> None:
    """Refuse a state whose labels or items are not those of the data."""
    known = range(len(dataset.class_names))
    held = found.state.tensors.get("learner.memory.column.x")
    kind = torch.from_numpy(dataset.train_images[:0].copy()).dtype
    labels_fit = all(label in known for label in found.state.scalars["labels"])
    if not labels_fit or (held is not None and held.dtype != kind):
        raise OcilError(
            f"The newest checkpoint in {folder.checkpoints} holds labels or items that are not "
            "those of the data; delete it to use the one before."
        )
