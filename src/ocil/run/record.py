"""The record of a finished run: all that tables, figures and pages are made from."""

from __future__ import annotations

import contextlib
import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ocil
from ocil.data import SOURCES
from ocil.data.own import OwnData
from ocil.learners import registry
from ocil.run import metrics
from ocil.run.files import write_atomic
from ocil.run.folder import Plan
from ocil.run.reading import SCHEMA
from ocil.samples import suited
from ocil.settings import NOT_IN_JOB, Settings, layered, to_mapping

ALWAYS_SHOWN = ("data", "memory", "seed")


def describe(plan: Plan, own: OwnData | None = None) -> dict[str, Any]:
    """What is known of a run before it starts."""
    s = plan.settings
    return {
        "schema": SCHEMA,
        "method": plan.method,
        "preset": plan.preset,
        "study": plan.study,
        "data": s.data,
        "split": "validation" if s.validate else "test",
        "memory": s.memory,
        "seed": s.seed,
        "epochs": s.epochs,
        "settings": to_mapping(s),
        "job": plan.job,
        "command": command(plan.method, s, own),
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


def command(method: str, settings: Settings, own: OwnData | None = None) -> str:
    """A command line that gives these settings, also after presets have changed.

    It names all that differs from the method's defaults, or from what presets make of them today.
    Data of your own are named as seen from the folder that holds them: a record holds no path.
    """
    kind = registry.get(method).settings_type
    values = to_mapping(settings)
    base = {"data": settings.data, "preset": settings.preset, "memory": settings.memory}
    protocol = SOURCES[settings.data].protocol if settings.data in SOURCES else {}
    preset, _ = layered(kind, protocol, registry.get(method).presets, base)
    plain = kind()
    words = ["ocil", "run", method]
    always = ALWAYS_SHOWN
    if own:  # its items decide on net and augmentation where nobody does
        values["data"] = f"./{own.path.resolve().name}"
        always += tuple(suited((1,)))
    for key, value in values.items():
        how = key in NOT_IN_JOB and key != "latents"  # that one makes a file that others lack
        if how or (key == "preset" and value == kind.preset):
            continue
        usual = value == getattr(plain, key) == getattr(preset, key)
        if not usual or (key in always and value is not None):
            flag = f"--{key.replace('_', '-')}"
            if isinstance(value, bool):
                words.append(flag if value else f"--no-{key.replace('_', '-')}")
            else:
                words += [flag, str(value)]
    if own:
        words += [] if own.resize is None else ["--resize", str(own.resize)]
        words += [] if own.bad_images == "fail" else ["--bad-images", own.bad_images]
    return shlex.join(words)


def left_out(record: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a record that its command does not name and that presets make otherwise today.

    A setting that the record does not have joined later, with a default that changes nothing.
    """
    learner = registry.get(record["method"])
    recorded = to_mapping(learner.settings_type()) | record["settings"]
    flags = {word[2:].replace("-", "_") for word in shlex.split(record["command"]) if "--" in word}
    named = {key: value for key, value in recorded.items() if {key, f"no_{key}"} & flags}
    source = SOURCES.get(recorded["data"])
    protocol = source.protocol if source else {}
    found, _ = layered(learner.settings_type, protocol, learner.presets, named)
    today = to_mapping(found)
    asked = {k: v for k, v in recorded.items() if k not in NOT_IN_JOB and k != "preset"}
    return {key: value for key, value in asked.items() if today.get(key) != value}


def versions() -> dict[str, str]:
    return {
        "ocil": ocil.__version__,
        "torch": str(torch.__version__),  # a subclass of str
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "instructions": torch.backends.cpu.get_cpu_capability(),  # they decide how torch rounds
    }


def processor() -> str:
    """The model name of the processor: another kind may round otherwise."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        return next(x for x in lines if x.startswith("model name")).split(":", 1)[1].strip()[:200]
    return platform.processor() or platform.machine()


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


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process so far, in megabytes."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        # Linux hands the peak that getrusage tells on to child processes: a run started by a
        # study would report the study's own. The kernel's count for this program does not.
        lines = Path("/proc/self/status").read_text().splitlines()
        return round(int(next(x for x in lines if x.startswith("VmHWM:")).split()[1]) / 2**10, 1)
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if sys.platform == "darwin" else 2**10), 1)
