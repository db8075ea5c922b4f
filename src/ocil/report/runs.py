"""A run as all reports see it: its record, where that lies, and the numbers derived from it.

A command reads its records once (`read_runs`). Every number comes from the evaluations and tasks
of a record, never from stored averages.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocil.errors import OcilError
from ocil.run import metrics
from ocil.run.reading import find_records
from ocil.settings import with_role

Record = Mapping[str, Any]
Matrix = NDArray[np.float64]

# Runs that differ only by these are one group; preset and read-out are taken from the record,
# which holds what they were resolved to. A preset is only a name for settings (as in the job id).
INCIDENTAL = with_role("machine", "keep", "measure", "name") | {"seed"}
METRICS = ("accuracy", "forgetting", "learning", "backward", "anytime", "worst")
TITLES = {
    "accuracy": "final average accuracy",
    "forgetting": "average forgetting",
    "learning": "learning accuracy",
    "backward": "backward transfer",
    "anytime": "average anytime accuracy",
    "worst": "worst-case accuracy",
}


@dataclass(frozen=True, eq=False)
class Run:
    """A record, where it lies, and its name (STUDY/JOB) below the folder that was read."""

    record: Record
    path: Path = Path("record.json")
    name: str = ""
    _values: dict[str, dict[str, float | None]] = field(default_factory=dict, repr=False)

    @property
    def method(self) -> str:
        return self.record["method"]

    @property
    def data(self) -> str:
        return self.record["data"]

    @property
    def memory(self) -> int | None:
        return self.record.get("memory")

    @property
    def split(self) -> str:
        return self.record["split"]

    @property
    def seed(self) -> int:
        return self.record["seed"]

    @property
    def readout(self) -> str:
        """The read-out that the run reports."""
        return self.record["readout"]

    @property
    def tasks(self) -> Sequence[Sequence[int]]:
        return self.record["tasks"]

    @property
    def evaluations(self) -> Sequence[Any]:
        return self.record["evaluations"]

    @property
    def study(self) -> str:
        """Empty for a run that lies alone."""
        return self.name.split("/")[0] if "/" in self.name else ""

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """What tells groups apart: the settings, and facts recorded beside them."""
        record = self.record
        fingerprint = record.get("data_fingerprint")
        facts = {
            "epochs": record.get("epochs"),
            "readout": record["readout"],
            "tasks": len(record["tasks"]),
            "fingerprint": fingerprint and fingerprint[:8],
        }
        facts = {k: v for k, v in facts.items() if v is not None}
        return {k: v for k, v in record["settings"].items() if k not in INCIDENTAL} | facts

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration with what tells this run from others of its group."""
        named = {key: self.record.get(key) for key in ("method", "data", "memory", "split", "seed")}
        preset = {"preset": self.record["settings"].get("preset", "default")}
        return self.configuration | named | preset

    def value(self, metric: str, readout: str | None = None) -> float | None:
        """A metric (of METRICS, or "curve": the mean of A_t over the tasks) at a read-out, the
        reported one by default; None where it is not defined."""
        readout = readout or self.readout
        if readout not in self._values:
            self._values[readout] = _metrics(self, readout)
        return self._values[readout][metric]

    def matrix(self, readout: str) -> Matrix:
        """Accuracy on task i after task t: (T, T), nan where it was not evaluated."""
        return metrics.accuracy_matrix(self.evaluations, self.tasks, readout)

    def curve(self, readout: str) -> Matrix:
        """A_t, the average accuracy after each task: (T,)."""
        return metrics.accuracy_curve(self.matrix(readout))


def _metrics(run: Run, readout: str) -> dict[str, float | None]:
    evaluations, tasks, matrix = run.evaluations, run.tasks, run.matrix(readout)
    final = metrics.final_average_accuracy(matrix)
    through = float(np.mean(metrics.accuracy_curve(matrix)))
    return {
        "accuracy": None if np.isnan(final) else final,
        "forgetting": metrics.average_forgetting(matrix),
        "learning": metrics.learning_accuracy(matrix),
        "backward": metrics.backward_transfer(matrix),
        "anytime": metrics.average_anytime_accuracy(evaluations, readout),
        "worst": metrics.worst_case_accuracy(evaluations, tasks, readout),
        "curve": None if np.isnan(through) else through,
    }


def read_runs(folders: Iterable[Path | str]) -> list[Run]:
    """Every run below some folders, in order of path; a run below two of them is read once."""
    found: dict[Path, Run] = {}
    folders = [Path(folder) for folder in folders]
    for folder in folders:
        for path, record in find_records(folder):
            name = path.relative_to(folder).parent.as_posix()
            found.setdefault(path.resolve(), Run(record, path, name))
    if not found:
        below = ", ".join(map(str, folders))
        raise OcilError(f"There is no record below {below}; make one with `ocil run`.")
    return list(found.values())
