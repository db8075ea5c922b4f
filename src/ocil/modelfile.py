"""One file for a classifier: safetensors, with a JSON note in its metadata.

    8 bytes   length of the header, little endian
    header    JSON: the place of every tensor, and "__metadata__": {"ocil.model": NOTE}
    tensors   weights, memory, mixtures, optimiser, generators, pending samples

NOTE is JSON itself: version, method, settings, labels, what the items are, and `sha256` over all
tensors and the rest of the note. Any safetensors reader opens the file; nothing in it is code. A
file contains training images (the replay memory) unless it was saved without them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from ocil.errors import OcilError
from ocil.session import State

VERSION = 1
KEY = "ocil.model"
LARGEST_HEADER = 32 << 20  # bytes
# What any content can provoke while it is read.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError)


class ModelFile(NamedTuple):
    """Content of a file: plain values, and tensors by name."""

    note: dict[str, Any]
    tensors: dict[str, torch.Tensor]


# version -> what makes the content of the next version of it
MIGRATIONS: dict[int, Callable[[ModelFile], ModelFile]] = {}


def dump(note: dict[str, Any], tensors: dict[str, torch.Tensor]) -> bytes:
    """The bytes of a file."""
    tensors = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    note = {**note, "version": VERSION}
    note["sha256"] = State(tensors, note).sha256()
    blob = save_tensors(tensors, metadata={KEY: json.dumps(note, sort_keys=True)})
    if (size := int.from_bytes(blob[:8], "little")) > LARGEST_HEADER:
        raise OcilError(
            f"The header of the model would have {size} bytes, at most {LARGEST_HEADER} are read "
            "again; shorten the labels."
        )
    return blob


def parse(blob: bytes, where: str = "The model") -> ModelFile:
    """The content of a file, checked; migrated if it is of an older version."""
    header = _header(blob[:8], lambda size: blob[8 : 8 + size], len(blob), where)
    note = _note(header, where)
    try:
        tensors = load_tensors(blob)
        wanted = note.pop("sha256")
        if State(tensors, note).sha256() != wanted:
            raise ValueError("its checksum is another")
    except UNREADABLE as error:
        raise _damaged(where, error) from error
    found = ModelFile(note, tensors)
    for version in range(note["version"], VERSION):
        if version not in MIGRATIONS:
            raise OcilError(f"{where} has format {version}, which this ocil no longer reads.")
        found = MIGRATIONS[version](found)
    return found


def read(path: Path) -> ModelFile:
    """Read a file; its header is looked at before the rest is taken into memory."""
    try:
        if not path.is_file():
            raise OcilError(f"There is no model file {path}; `ocil learn` or save() makes one.")
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            _note(_header(stream.read(8), stream.read, size, str(path)), str(path))
            stream.seek(0)
            return parse(stream.read(), str(path))
    except OSError as error:
        raise OcilError(f"Cannot read {path}: {error.strerror}.") from error


def _header(start: bytes, rest: Callable[[int], bytes], size: int, where: str) -> dict[str, Any]:
    """The JSON header, refused before it is read if its length cannot be true."""
    claimed = int.from_bytes(start, "little")
    if len(start) < 8 or claimed > size - 8 or claimed > LARGEST_HEADER:
        raise OcilError(
            f"{where} is no model of ocil, or it is cut off: its header would have {claimed} bytes "
            f"in a file of {size}."
        )
    try:
        header = json.loads(rest(claimed))
        ends = [item["data_offsets"][1] for key, item in header.items() if key != "__metadata__"]
        if size - 8 - claimed != max(ends, default=0):
            raise ValueError(f"it has {size} bytes, expected {8 + claimed + max(ends, default=0)}")
        return header
    except UNREADABLE as error:
        raise _damaged(where, error) from error


def _note(header: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        text = (header.get("__metadata__") or {}).get(KEY)
        if text is None:
            raise OcilError(f"{where} is of another program: it has no note '{KEY}'.")
        note = json.loads(text)
        version = note["version"]
        if type(version) is not int or version < 1:
            raise ValueError(f"its version is {version!r}")
    except UNREADABLE as error:
        raise _damaged(where, error) from error
    if version > VERSION:
        raise OcilError(
            f"{where} was made by a newer ocil (format {version}, this one reads up to {VERSION}); "
            "upgrade with `pip install --upgrade ocil`."
        )
    return note


def _damaged(where: str, error: Exception) -> OcilError:
    problem = " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__
    return OcilError(
        f"{where} is truncated, altered or no model of ocil ({problem}); copy it again."
    )
