"""What a resumed run takes up from before: evaluations and numbers that its events tell."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ocil.data import Dataset
from ocil.errors import OcilError
from ocil.files import canonical
from ocil.run.folder import RunFolder
from ocil.run.reading import evaluation_is_sound
from ocil.session import State

Row = dict[str, Any]


def evaluations(
    folder: RunFolder, frame: dict[str, Any], due: set[tuple[int, str]], step: int
) -> list[Row]:
    """Evaluations up to a step; what a killed run wrote twice is the same and kept once.

    `frame` has the tasks, read-outs and class names they must fit, `due` those (step, images) that
    must be there.
    """
    past = {}
    for event in folder.read_events():
        if event.get("event") != "evaluation" or not evaluation_is_sound(event, frame):
            continue
        if event["step"] <= step:
            key = event["step"], event["images"], event["readout"]
            past[key] = {k: v for k, v in event.items() if k != "event"}
    if missing := due - {key[:2] for key in past}:
        raise OcilError(
            f"{folder.events} lacks {len(missing)} evaluations made before step {step}; "
            f"delete {folder.checkpoints} and resume to learn from the start again."
        )
    return [past[key] for key in sorted(past, key=lambda k: k[0])]


def inside(folder: RunFolder, step: int) -> list[Row]:
    """What the learner told of itself up to a step, each task once."""
    past = {}
    for event in folder.read_events():
        told, at = event.get("event") == "inside", event.get("step")
        if told and isinstance(at, int) and at <= step:
            past[at] = {k: v for k, v in event.items() if k != "event"}
    return [past[at] for at in sorted(past)]


def told(rows: Sequence[Row]) -> str:
    """A sum over what the events tell of the result so far, kept in the checkpoint."""
    return hashlib.sha256(b"\n".join(sorted(map(canonical, rows)))).hexdigest()


def check_told(
    progress: Mapping[str, Any], rows: Sequence[Row], folder: RunFolder, step: int
) -> None:
    """Refuse altered events: the record is made of them. Older checkpoints say nothing."""
    if progress.get("told", told(rows)) != told(rows):
        raise OcilError(
            f"{folder.events} was altered before step {step}; delete {folder.checkpoints} and "
            "resume to learn from the start again."
        )


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
