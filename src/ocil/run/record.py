"""The record of a finished run: all that tables, figures and pages are made from."""

from __future__ import annotations

import contextlib
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ocil.data.own import OwnData
from ocil.files import write_atomic
from ocil.run import metrics
from ocil.run.command import command, places_of
from ocil.run.folder import Plan
from ocil.run.reading import SCHEMA
from ocil.settings import to_mapping
from ocil.version import __version__


def describe(plan: Plan, own: OwnData | None = None) -> dict[str, Any]:
    """What is known of a run before it starts."""
    s = plan.settings
    return {
        "schema": SCHEMA,
        "method": plan.method,
        "preset": plan.preset,
        "study": plan.study,
        **({} if plan.trials is None else {"trials": plan.trials}),
        "data": s.data,
        "split": "validation" if s.validate else "test",
        "memory": s.memory,
        "seed": s.seed,
        "epochs": s.epochs,
        "settings": to_mapping(s),
        "job": plan.job,
        "command": command(plan.method, to_mapping(s), places_of(own)),
        "versions": versions(),
        "processor": processor(),
        **source_state(),
    }


def results(
    evaluations: list[dict[str, Any]], tasks: list[list[int]], readout: str
) -> dict[str, Any]:
    """The numbers derived from the evaluations, for the read-out that counts."""
    matrix = metrics.accuracy_matrix(evaluations, tasks, readout)
    return {
        "evaluations": evaluations,
        "accuracy_matrix": [[None if np.isnan(a) else a for a in row] for row in matrix.tolist()],
        "final_average_accuracy": metrics.final_average_accuracy(matrix),
        "average_forgetting": metrics.average_forgetting(matrix),
        "metrics": {
            "learning_accuracy": metrics.learning_accuracy(matrix),
            "backward_transfer": metrics.backward_transfer(matrix),
            "average_anytime_accuracy": metrics.average_anytime_accuracy(evaluations, readout),
            "worst_case_accuracy": metrics.worst_case_accuracy(evaluations, tasks, readout),
        },
    }


def write(path: Path, record: dict[str, Any]) -> None:
    """One key a line and one evaluation a line: short in a diff, readable without tools."""
    lines = []
    for key, value in record.items():
        if key == "evaluations":
            rows = ",\n  ".join(json.dumps(row) for row in value)
            lines.append(f'"evaluations": [\n  {rows}]')
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    write_atomic(path, ("{" + ",\n ".join(lines) + "}\n").encode())


def versions() -> dict[str, str]:
    return {
        "ocil": __version__,
        "torch": str(torch.__version__),  # a subclass of str
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "instructions": torch.backends.cpu.get_cpu_capability(),  # they decide how torch rounds
    }


def processor() -> str:
    """The model name of the processor: another kind may round otherwise."""
    found = _kernel_says("/proc/cpuinfo", "model name")
    return (found or platform.processor() or platform.machine())[:200]


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process so far, in megabytes."""
    # Linux hands the peak that getrusage gives on to child processes: a run started by a study
    # would report the study's own. The kernel's count for this program does not.
    if found := _kernel_says("/proc/self/status", "VmHWM"):
        return round(int(found.split()[0]) / 2**10, 1)
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)


def _kernel_says(file: str, key: str) -> str:
    """The first value of a key in a file of Linux; nothing elsewhere."""
    with contextlib.suppress(OSError):
        lines = Path(file).read_text(errors="replace").splitlines()
        return next((x.split(":", 1)[1].strip() for x in lines if x.startswith(key)), "")
    return ""


def source_state() -> dict[str, Any]:
    """Commit of the source tree and whether the code in it was changed since; null elsewhere."""
    root = Path(__file__).resolve().parents[3]

    def git(*words: str) -> str | None:
        call = ["git", "-C", str(root), *words]
        try:
            done = subprocess.run(call, capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed package can lie inside somebody else's repository: that commit is not ours.
    if not (root / "src" / "ocil").is_dir() or (commit := git("rev-parse", "HEAD")) is None:
        return {"commit": None, "dirty": None}
    changes = git("status", "--porcelain", "--", "src", "constraints.txt")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}
