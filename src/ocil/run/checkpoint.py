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
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from ocil.errors import OcilError
from ocil.run.files import canonical, make_folder, write_atomic
from ocil.run.session import State

log = logging.getLogger("ocil")
KEPT = 2
SCHEMA = 1


class Checkpoint(NamedTuple):
    step: int
    state: State
    progress: dict[str, Any]  # seconds learned so far and the like: not part of the state


def save(folder: Path, state: State, progress: dict[str, Any]) -> Path:
    """Write a checkpoint, then remove all but the last two."""
    make_folder(folder)
    tensors = {k: v.detach().cpu().contiguous() for k, v in state.tensors.items()}
    blob = save_tensors(tensors)
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
    for old in sorted(folder.glob("step-*.json"))[:-KEPT]:
        for file in (old, old.with_suffix(".safetensors")):
            with contextlib.suppress(OSError):
                file.unlink()
    return path


def latest(folder: Path) -> Checkpoint | None:
    """The newest sound checkpoint; damaged ones are reported and passed over."""
    for path in sorted(folder.glob("step-*.json"), reverse=True):
        try:
            return read(path)
        except OcilError as error:
            log.warning("%s Using the one before it.", error)
    return None


def read(path: Path) -> Checkpoint:
    """Read one checkpoint; anything that does not add up is an OcilError."""
    try:
        note = json.loads(path.read_bytes())
        check = note.pop("check")
        if hashlib.sha256(canonical(note)).hexdigest() != check:
            raise OcilError(f"Checkpoint {path} was altered.")
        if note["schema"] > SCHEMA:
            raise OcilError(f"Checkpoint {path} was made by a newer ocil; upgrade ocil.")
        blob = path.with_suffix(".safetensors").read_bytes()
        if hashlib.sha256(blob).hexdigest() != note["sha256"]:
            raise OcilError(
                f"Checkpoint {path.with_suffix('.safetensors')} is truncated or altered."
            )
        state = State(load_tensors(blob), note["scalars"])
        return Checkpoint(int(note["step"]), state, note["progress"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise OcilError(f"Checkpoint {path} cannot be read ({error}).") from error
