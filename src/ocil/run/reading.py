"""Reading of record.json, the only input of reports: a file is hostile until it is checked."""

from __future__ import annotations

import json
import logging
import math
import os
import shlex
from pathlib import Path
from typing import Any

from ocil.errors import OcilError
from ocil.files import read_plain
from ocil.learners import registry
from ocil.run.command import command, places_in

SCHEMA = 1
RECORD_NAME = "record.json"
MAX_BYTES = 64 * 2**20
MAX_TASKS = 1_000  # an accuracy matrix has the square of it
MAX_CLASSES = 100_000
MAX_TEXT = 10_000  # characters

Record = dict[str, Any]

_log = logging.getLogger(__name__)

_REQUIRED: dict[str, type] = {
    "method": str,
    "data": str,
    "split": str,
    "seed": int,
    "settings": dict,
    "command": str,
    "readout": str,
    "readouts": list,
    "class_names": list,
    "tasks": list,
    "evaluations": list,
}
_OPTIONAL: dict[str, type] = {  # may be absent or null
    "preset": str,
    "study": str,
    "data_fingerprint": str,
    "memory": int,
    "epochs": int,
    "job": str,
    "versions": dict,
    "processor": str,
    "commit": str,
    "dirty": bool,
    "stream_sha256": str,
    "steps": int,
    "gradient_steps_per_batch": int,
    "seconds": float,
    "images_per_second": float,
    "backbone_images_per_step": float,
    "bytes_held": int,
    "peak_memory_mb": float,
    "state_sha256": str,
}


def read_record(path: Path | str) -> Record:
    """The checked record of a run folder (or of a record.json given by name)."""
    path = Path(path)
    file = path / RECORD_NAME if path.is_dir() else path
    record = _parse(file)
    try:
        check_record(record)
    except _Wrong as problem:
        raise OcilError(f"{file} {problem}") from None
    return upgraded(record)


def upgraded(record: Record) -> Record:
    """A record of any age as it would be written today: names, settings and their command.

    Where Dynamic Preservation had a pass of its own, OTC took a step more than records once said.
    """
    method, settings = record["method"], registry.upgraded(record["method"], record["settings"])
    record = record | {"settings": settings}
    said, preserve = record.get("gradient_steps_per_batch"), settings.get("preserve")
    apart = settings.get("fused") is False and _is(preserve, float) and preserve != 0
    if apart and method == "otc" and said is not None and said == settings.get("steps"):
        record["gradient_steps_per_batch"] = said + 1
    try:
        return record | {"command": command(method, settings, places_in(record["command"]))}
    except (OcilError, LookupError, TypeError, ValueError, ImportError):
        return record  # a method or settings of elsewhere


def find_records(root: Path | str) -> list[tuple[Path, Record]]:
    """(path of record.json, record) of every readable record below a folder, sorted by path."""
    root = Path(root)
    if not root.is_dir():
        raise OcilError(f"There is no folder {root}; give the folder that holds the runs.")
    files = sorted(Path(at) / RECORD_NAME for at, _, names in os.walk(root) if RECORD_NAME in names)
    found: list[tuple[Path, Record]] = []
    for file in files:
        try:
            found.append((file, read_record(file)))
        except OcilError as problem:
            _log.warning("Left out: %s", problem)
    return found


def check_record(record: Any) -> None:
    """Raise unless every key that reports use is there and has the type and range they need."""
    _need(isinstance(record, dict), "does not hold a JSON object")
    schema = record.get("schema")
    _need(_is(schema, int) and schema >= 1, "has no schema number, so it is not a record of ocil")
    if schema > SCHEMA:
        raise _Wrong(
            f"has record schema {schema}, this ocil reads up to {SCHEMA}; "
            "upgrade ocil with `pip install --upgrade ocil`."
        )
    for key, kind in _REQUIRED.items():
        _need(key in record, f"lacks the key '{key}'")
        _need(_is(record[key], kind), f"has a wrong value for the key '{key}'")
    for key, kind in _OPTIONAL.items():
        value = record.get(key)
        _need(value is None or _is(value, kind), f"has a wrong value for the key '{key}'")
    _need(record["split"] in ("test", "validation"), "has a split that is not test or validation")
    _check_names(record)
    _check_tasks(record)
    for number, evaluation in enumerate(record["evaluations"]):
        _need(evaluation_is_sound(evaluation, record), f"has a wrong evaluation number {number}")


def _check_names(record: Record) -> None:
    names, readouts = record["class_names"], record["readouts"]
    _need(all(_is(name, str) for name in names), "has class names that are not text")
    _need(1 <= len(names) <= MAX_CLASSES, f"has {len(names)} classes, not 1 to {MAX_CLASSES}")
    _need(all(_is(name, str) for name in readouts), "has read-outs that are not text")
    _need(record["readout"] in readouts, "reports a read-out that is not in its list")
    versions = record.get("versions") or {}
    _need(all(_is(value, str) for value in versions.values()), "has versions that are not text")


def _check_tasks(record: Record) -> None:
    tasks, classes = record["tasks"], len(record["class_names"])
    _need(1 <= len(tasks) <= MAX_TASKS, f"has {len(tasks)} tasks, not 1 to {MAX_TASKS}")
    for labels in tasks:
        sound = isinstance(labels, list) and all(_is(x, int) and 0 <= x < classes for x in labels)
        _need(sound, "has a task with a label that is not one of its classes")


def evaluation_is_sound(evaluation: Any, record: Record) -> bool:
    """Whether an evaluation has what reports use, for the tasks, read-outs and class names."""
    if not isinstance(evaluation, dict):
        return False
    step: Any = evaluation.get("step")
    task: Any = evaluation.get("task")
    correct, total = evaluation.get("correct"), evaluation.get("total")
    return (
        _is(step, int)
        and step >= 0
        and _is(task, int)
        and 0 <= task < len(record["tasks"])
        and evaluation.get("readout") in record["readouts"]
        and evaluation.get("images") in ("all", "probe")
        and isinstance(correct, list)
        and isinstance(total, list)
        and len(correct) == len(total) == len(record["class_names"])
        and all(
            _is(c, int) and _is(n, int) and 0 <= c <= n < 2**53
            for c, n in zip(correct, total, strict=True)
        )
    )


def _parse(file: Path) -> Any:
    if not file.exists():
        unfinished = file.with_name("settings.json").is_file()
        go_on = f"finish it with `ocil resume {shlex.quote(str(file.parent))}`"
        remedy = go_on if unfinished else "make one with `ocil run`"
        raise OcilError(f"There is no record {file}; a run writes it at its end: {remedy}.")
    try:
        return json.loads(read_plain(file, MAX_BYTES), parse_constant=_refuse_constant)
    except OSError as problem:
        raise OcilError(f"{file} cannot be read ({problem.strerror}); check it.") from None
    except (ValueError, RecursionError):
        raise OcilError(
            f"{file} is damaged (it is not whole JSON); run its command again."
        ) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _is(value: Any, kind: type) -> bool:
    """isinstance for JSON: true is no number, every number is a float, none is infinite."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        return False
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind and (not isinstance(value, str) or len(value) <= MAX_TEXT)


class _Wrong(Exception):
    """What is wrong with a record, without the file's name."""


def _need(condition: bool, complaint: str) -> None:
    if not condition:
        raise _Wrong(f"{complaint}; remove it and run its command again.")
