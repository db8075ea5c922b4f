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
AGAIN = "remove it and run its command again"

Record = dict[str, Any]

_log = logging.getLogger(__name__)

_REQUIRED: dict[type, str] = {
    str: "method data split command readout",
    int: "seed",
    dict: "settings",
    list: "readouts class_names tasks evaluations",
}
_OPTIONAL: dict[type, str] = {  # may be absent or null
    str: "preset study data_fingerprint job processor commit stream_sha256 state_sha256",
    int: "memory epochs trials steps gradient_steps_per_batch bytes_held",
    float: "seconds images_per_second backbone_images_per_step peak_memory_mb",
    bool: "dirty",
    dict: "versions",
}


class Wrong(Exception):
    """What is wrong with a file, without its name."""


def need(condition: Any, complaint: str, remedy: str = AGAIN) -> None:
    if not condition:
        raise Wrong(f"{complaint}; {remedy}.")


def read_record(path: Path | str) -> Record:
    """The checked record of a run folder (or of a record.json given by name)."""
    path = Path(path)
    file = path / RECORD_NAME if path.is_dir() else path
    record = _parse(file)
    try:
        check_record(record)
    except Wrong as problem:
        raise OcilError(f"{file} {problem}") from None
    return upgraded(record)


def upgraded(record: Record) -> Record:
    """A record of any age as it would be written today: names, settings and their command.

    Where Dynamic Preservation had a pass of its own, OTC took a step more than records once said.
    """
    method, settings = record["method"], registry.upgraded(record["method"], record["settings"])
    if (preset := settings.get("preset")) != record["settings"].get("preset", preset):
        record = record | {"preset": preset}
    record = record | {"settings": settings}
    said, preserve = record.get("gradient_steps_per_batch"), settings.get("preserve")
    apart = settings.get("fused") is False and is_json(preserve, float) and preserve != 0
    if apart and method == "otc" and said is not None and said == settings.get("updates"):
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
    need(isinstance(record, dict), "does not hold a JSON object")
    schema = record.get("schema")
    need(
        is_json(schema, int) and schema >= 1, "has no schema number, so it is not a record of ocil"
    )
    newer = f"has record schema {schema}, this ocil reads up to {SCHEMA}"
    need(schema <= SCHEMA, newer, "upgrade ocil with `pip install --upgrade ocil`")
    for kind, keys in _REQUIRED.items():
        for key in keys.split():
            need(key in record, f"lacks the key '{key}'")
            need(is_json(record[key], kind), f"has a wrong value for the key '{key}'")
    for kind, keys in _OPTIONAL.items():
        for key in keys.split():
            sound = record.get(key) is None or is_json(record[key], kind)
            need(sound, f"has a wrong value for the key '{key}'")
    need(record["split"] in ("test", "validation"), "has a split that is not test or validation")
    names, tasks, readouts = (record[key] for key in ("class_names", "tasks", "readouts"))
    need(all(is_json(name, str) for name in names), "has class names that are not text")
    need(1 <= len(names) <= MAX_CLASSES, f"has {len(names)} classes, not 1 to {MAX_CLASSES}")
    need(all(is_json(name, str) for name in readouts), "has read-outs that are not text")
    need(record["readout"] in readouts, "reports a read-out that is not in its list")
    versions = record.get("versions") or {}
    need(all(is_json(v, str) for v in versions.values()), "has versions that are not text")
    need(1 <= len(tasks) <= MAX_TASKS, f"has {len(tasks)} tasks, not 1 to {MAX_TASKS}")
    for labels in tasks:
        sound = isinstance(labels, list)
        sound = sound and all(is_json(x, int) and 0 <= x < len(names) for x in labels)
        need(sound, "has a task with a label that is not one of its classes")
    for number, evaluation in enumerate(record["evaluations"]):
        need(evaluation_is_sound(evaluation, record), f"has a wrong evaluation number {number}")


def evaluation_is_sound(evaluation: Any, record: Record) -> bool:
    """Whether an evaluation has what reports use, for the tasks, read-outs and class names."""
    if not isinstance(evaluation, dict):
        return False
    keys = ("step", "task", "correct", "total")
    step, task, correct, total = (evaluation.get(key) for key in keys)
    return (
        _is_count(step, 2**63)
        and _is_count(task, len(record["tasks"]))
        and evaluation.get("readout") in record["readouts"]
        and evaluation.get("images") in ("all", "probe")
        and isinstance(correct, list)
        and isinstance(total, list)
        and len(correct) == len(total) == len(record["class_names"])
        and all(
            _is_count(n, 2**53) and _is_count(c, n + 1) for c, n in zip(correct, total, strict=True)
        )
    )


def _is_count(value: Any, below: int) -> bool:
    return type(value) is int and 0 <= value < below


def _parse(file: Path) -> Any:
    if not file.exists():
        unfinished = file.with_name("settings.json").is_file()
        go_on = f"finish it with `ocil resume {shlex.quote(str(file.parent))}`"
        remedy = go_on if unfinished else "make one with `ocil run`"
        raise OcilError(f"There is no record {file}; a run writes it at its end: {remedy}.")
    try:
        return json.loads(read_plain(file, MAX_BYTES), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise OcilError(
            f"{file} is damaged (it is not whole JSON); run its command again."
        ) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def is_json(value: Any, kind: type) -> bool:
    """isinstance for JSON: true is no number, every number is a float, none is infinite."""
    if type(value) is int and not -(2**63) <= value < 2**63:
        return False
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind and (not isinstance(value, str) or len(value) <= MAX_TEXT)
