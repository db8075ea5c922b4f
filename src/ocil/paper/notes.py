"""Why ours differ from the paper's numbers: sentences written by hand, with the records they cite.

`notes.toml` beside the studies holds them:

    [[note]]
    method = "er"
    data = "cifar10"
    memory = 1000
    metric = "accuracy"              # optional: of this metric only
    settings = { augment = "full" }  # optional: of rows with these settings only
    sentence = "The average of the weights: ..."
    records = ["er-images/8a28877bbdcf77e5"]
    readout = "head"                 # optional: print what this read-out of the records gives

A record that is not there, and a note on a difference that is no longer there, are errors: a
sentence must not outlive what it explains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ocil.errors import OcilError, suggest
from ocil.files import read_toml
from ocil.paper.cells import METRICS, Row
from ocil.report.groups import summarise
from ocil.report.runs import Run

NAME = "notes.toml"


@dataclass(frozen=True)
class Note:
    """A sentence on one cell, and what it rests on."""

    method: str
    data: str
    memory: int
    sentence: str
    records: list[str]  # STUDY/JOB
    metric: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    readout: str = ""

    def explains(self, row: Row, metric: str) -> bool:
        """Whether it speaks of a row whose metric differs."""
        g = row.group
        if g is None or row.difference(metric) is None or self.metric not in ("", metric):
            return False
        named = (g.method, g.data, g.memory) == (self.method, self.data, self.memory)
        return named and all(g.settings.get(k) == v for k, v in self.settings.items())

    def evidence(self, runs: Mapping[str, Run]) -> str:
        """What the cited records give at the read-out the note names; empty without one."""
        cited = [runs[name] for name in self.records] if self.readout else []
        found = {
            metric: summarise([run.value(metric, self.readout) for run in cited])
            for metric in (*METRICS, "learning")
        }
        parts = [f"{metric} {summary}" for metric, summary in found.items() if summary]
        return f"read-out {self.readout}: {', '.join(parts)}" if parts else ""


def read_notes(root: Path, runs: Mapping[str, Run]) -> list[Note]:
    """The notes of a results folder, all their records known; none where there is no file."""
    path = root / NAME
    if not path.is_file():
        return []
    content = read_toml(path)
    listed = content.get("note", [])
    if set(content) - {"note"} or not isinstance(listed, list):
        raise OcilError(f"{path} may hold [[note]] tables only; remove the rest.")
    notes = [_note(table, number, path) for number, table in enumerate(listed, 1)]
    for number, note in enumerate(notes, 1):
        for name in note.records:
            if name not in runs:
                hint = suggest(name, runs) or " Name it as STUDY/JOB."
                raise OcilError(f"Note {number} of {path} cites no record: '{name}'.{hint}")
            if note.readout and note.readout not in runs[name].record["readouts"]:
                raise OcilError(
                    f"Note {number} of {path} names the read-out '{note.readout}', which the "
                    f"record {name} lacks; name one of its own."
                )
    return notes


def check_used(notes: Sequence[Note], rows: Sequence[Row], root: Path) -> None:
    """Refuse a note that explains no difference."""
    for number, note in enumerate(notes, 1):
        if not any(note.explains(row, metric) for row in rows for metric in METRICS):
            cell = f"{note.method}, {note.data}, memory {note.memory}"
            raise OcilError(
                f"Note {number} of {root / NAME} ({cell}) explains a difference from the paper "
                "that is not there; correct or remove it."
            )


def _note(table: Any, number: int, path: Path) -> Note:
    kinds = {
        "method": str, "data": str, "memory": int, "sentence": str, "records": list,
        "metric": str, "settings": dict, "readout": str,
    }  # fmt: skip
    if not isinstance(table, dict):
        raise OcilError(f"Note {number} of {path} is no table; write it as [[note]].")
    for key, value in table.items():
        if key not in kinds:
            raise OcilError(f"Unknown key '{key}' in note {number} of {path}.{suggest(key, kinds)}")
        if type(value) is not kinds[key]:
            raise OcilError(f"The key '{key}' in note {number} of {path} has a wrong type.")
    lacking = {f.name for f in fields(Note)} - {"metric", "settings", "readout"} - set(table)
    if lacking or not table["records"] or not all(isinstance(n, str) for n in table["records"]):
        missing = ", ".join(sorted(lacking)) or "records"
        raise OcilError(f"Note {number} of {path} lacks {missing}; add what it rests on.")
    return Note(**table)
