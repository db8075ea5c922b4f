"""Checkpoints: safetensors and JSON, written whole, checksummed, the last two kept.

checkpoints/step-00000120.safetensors holds the tensors; step-00000120.json, written after it, holds
its sha256, the scalars and the progress, and a sha256 of itself. Only a pair whose sums agree is a
checkpoint; anything else is passed over for the one before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from ocil.data import Dataset
from ocil.errors import OcilError, refusing
from ocil.files import canonical, make_folder, read_plain, write_atomic
from ocil.run.folder import RunFolder
from ocil.run.reading import evaluation_is_sound
from ocil.session import State
from ocil.stream import Stream

log = logging.getLogger("ocil")
KEPT = 2
MAX_THREADS = 4096
MAX_BYTES = 1 << 36
SCHEMA = 2  # 1: the id of the job was counted otherwise

Row = dict[str, Any]


class Checkpoint(NamedTuple):
    step: int
    state: State
    progress: dict[str, Any]  # seconds learned, threads, what run it is "of": not of the state


def save(folder: Path, state: State, progress: dict[str, Any]) -> Path:
    """Write a checkpoint, then remove all but it and the one before."""
    make_folder(folder)
    blob = save_tensors({k: v.detach().cpu().contiguous() for k, v in state.tensors.items()})
    path = folder / f"step-{state.scalars['step']:08d}.json"
    note = {
        "schema": SCHEMA,
        "step": state.scalars["step"],
        "sha256": hashlib.sha256(blob).hexdigest(),
        "scalars": state.scalars,
        "progress": progress,
    }
    note["check"] = hashlib.sha256(canonical(note)).hexdigest()
    write_atomic(path.with_suffix(".safetensors"), blob)
    write_atomic(path, json.dumps(note).encode())
    # Older ones go, later ones (passed over as damaged), and what a kill left.
    whole = sorted(p.stem for p in folder.glob("step-*.json") if p.stem <= path.stem)
    for file in folder.glob("*step-*"):
        if file.stem not in whole[-KEPT:]:
            with contextlib.suppress(OSError):
                file.unlink()
    return path


def latest(folder: Path) -> Checkpoint | None:
    """The newest sound checkpoint; damaged ones are reported and passed over."""
    paths = sorted(folder.glob("step-*.json"), reverse=True)
    for path in paths:
        try:
            return read(path)
        except OcilError as error:
            log.warning("%s It is passed over for the one before it.", error)
    if paths:
        log.warning("No sound checkpoint is left in %s; the run starts at step 0.", folder)
    return None


def read(path: Path) -> Checkpoint:
    """Read one checkpoint; anything that does not add up is an OcilError."""
    with refusing(f"Checkpoint {path} cannot be read", "", SafetensorError):
        note = json.loads(read_plain(path))
        check = note.pop("check")
        if hashlib.sha256(canonical(note)).hexdigest() != check:
            raise OcilError(f"Checkpoint {path} was altered.")
        if note["schema"] > SCHEMA:
            raise OcilError(f"Checkpoint {path} was made by a newer ocil; upgrade ocil.")
        tensors = path.with_suffix(".safetensors")
        blob = read_plain(tensors, MAX_BYTES)
        if hashlib.sha256(blob).hexdigest() != note["sha256"]:
            raise OcilError(f"Checkpoint {tensors} is truncated or altered.")
        step, scalars, progress = note["step"], note["scalars"], note["progress"]
        sound = 0 < progress["threads"] <= MAX_THREADS and 0 <= progress["seconds"] < math.inf
        whole = type(step) is type(progress["threads"]) is int and scalars["step"] == step
        if not sound or not whole or "of" not in progress:
            raise ValueError("its values do not fit together")
        if note["schema"] == 1:
            progress["of"] = {"data": progress["of"]["data"]}
        return Checkpoint(step, State(load_tensors(blob), scalars), progress)


def events_before(
    found: Checkpoint, folder: RunFolder, dataset: Dataset, stream: Stream, readouts: Sequence[str]
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
