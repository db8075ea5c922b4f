"""Small, cheap runs on the bundled digits, hand-made records, the command line as a function."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# 24 images a task in batches of 10, 10 and 4: 15 steps, of which some end a task.
SMALL: dict[str, Any] = {
    "data": "digits",
    "limit_per_class": 12,
    "memory": 30,
    "replay": 16,
    "width": 16,
    "augment": "affine",
    "eval_every": 4,
    "probe": 40,
    "checkpoint_every": 5,
}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the user's data and cache out of the tests."""
    monkeypatch.delenv("OCIL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@dataclass(frozen=True)
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    def is_sentence(self) -> bool:
        """Exit code 2 and one line on stderr that is a sentence, not a traceback."""
        lines = self.err.strip().splitlines()
        whole = len(lines) == 1 and lines[0].startswith("ocil: ") and lines[0][-1] in ".)?"
        return self.code == 2 and whole and "Traceback" not in self.err


@pytest.fixture
def ocil(capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command line within this process."""
    from ocil.cli import main

    def call(*words: object) -> Said:
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        said = capfd.readouterr()
        return Said(int(stop.value.code or 0), said.out, said.err)

    return call


def start(words: Sequence[object], **options: Any) -> subprocess.Popen[str]:
    """`python -m ocil WORDS` as a process of its own."""
    call = [sys.executable, "-m", "ocil", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(call, **(pipes | {"env": dict(os.environ)} | options))


@pytest.fixture
def start_ocil() -> Callable[..., subprocess.Popen[str]]:
    return start


@pytest.fixture
def small() -> dict[str, Any]:
    return dict(SMALL)


def flags_of(settings: dict[str, Any]) -> list[str]:
    return [w for k, v in settings.items() for w in (f"--{k.replace('_', '-')}", str(v))]


@pytest.fixture
def flags() -> Callable[[dict[str, Any]], list[str]]:
    """Settings as words of the command line."""
    return flags_of


@pytest.fixture
def plan() -> Callable[..., Any]:
    """A plan for a method with the small settings and changes to them."""
    from ocil.learners import registry
    from ocil.run.folder import Plan

    def make(method: str = "er", **changes: Any) -> Plan:
        values = SMALL | changes
        if method == "finetune":
            values = {k: v for k, v in values.items() if k not in ("memory", "replay")}
        return Plan(method, registry.make_settings(method, values))

    return make


@pytest.fixture
def run(tmp_path: Path, plan: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Carry out a small run in tmp_path/OUT and return its record."""
    from ocil.run.loop import start_run

    def make(out: str = "run", method: str = "er", **changes: Any) -> dict[str, Any]:
        return start_run(plan(method, **changes), tmp_path / out)

    return make


@pytest.fixture
def within_seconds() -> Iterator[None]:
    """A test that hangs fails after ten seconds."""

    def end(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


# Hand-made records: small, finished, and as schema 1 describes them.
Record = dict[str, Any]
HOSTILE = "<script>alert(1)</script>|$x^2$ [red]\x1b[31m`_*=cmd()\n@a"


def _defaults() -> dict[str, Any]:
    from ocil.settings import Settings, to_mapping

    return to_mapping(Settings())


def _record(
    method: str = "er",
    *,
    seed: int = 0,
    memory: int | None = 500,
    split: str = "test",
    data: str = "mnist",
    joint: bool = False,
    shift: int = 0,
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> Record:
    """Three tasks of two classes, 100 images each; the average of the weights is 5 points better.

    Accuracy on task i after task t is 90 - 10 (t - i) + shift percent: A_T = 80 + shift, every
    task forgets 10 for each later one: F = (20 + 10) / 2 = 15.
    """
    tasks = [[1, 0], [2, 3], [4, 5]]
    chosen = {"seed": seed, "memory": memory, "data": data, "updates": 1, "augment": "none"}
    evaluations = []
    for t in range(3):
        for readout, lift in (("head", 0), ("ema-head", 5)):
            right = [min(90 - 10 * (t - i // 2) + shift + lift, 100) for i in range(6)]
            seen = [joint or label // 2 <= t for label in range(6)]
            counts = {
                "correct": [c if s else 0 for c, s in zip(right, seen, strict=True)],
                "total": [100 if s else 0 for s in seen],
            }
            head = {"task": 2 if joint else t, "readout": readout}
            for part in (10, 20):
                evaluations.append(head | counts | {"step": 20 * t + part, "images": "probe"})
            if not joint or t == 2:
                evaluations.append(head | counts | {"step": 20 * t + 20, "images": "all"})
    record: Record = {
        "schema": 1,
        "method": method,
        "preset": f"default/{data}",
        "study": None,
        "data": data,
        "data_fingerprint": "ab" * 32,
        "split": split,
        "memory": memory,
        "seed": seed,
        "epochs": 1,
        "settings": _defaults() | chosen | (settings or {}),
        "job": "cd" * 32,
        "command": f"ocil run {method} --data {data} --seed {seed}",
        "versions": {"ocil": "0.1.0", "python": "3.11.7"},
        "commit": "ef" * 20,
        "dirty": False,
        "readout": "ema-head",
        "readouts": ["head", "ema-head"],
        "stream_sha256": "12" * 32,
        "class_names": ["zero", "one", "two", "three", "four", "five"],
        "tasks": tasks,
        "evaluations": evaluations,
        "steps": 60,
        "gradient_steps_per_batch": 1,
        "seconds": 1.5 + seed,
        "images_per_second": 400.0,
        "backbone_images_per_step": 74.0,
        "bytes_held": 392_000,
        "peak_memory_mb": 300.0,
        "state_sha256": "34" * 32,
    }
    return record | changes


@pytest.fixture
def make_record() -> Callable[..., Record]:
    return _record


@pytest.fixture
def hostile_record() -> Record:
    """Markup of every language we write, wherever a record holds free text."""
    return _record(
        HOSTILE,
        data=HOSTILE,
        settings={"augment": HOSTILE, HOSTILE: HOSTILE},
        class_names=[HOSTILE] * 6,
        command=f"ocil run {HOSTILE}",
        preset=HOSTILE,
        versions={HOSTILE: HOSTILE},
        commit=HOSTILE,
    )


@pytest.fixture
def write_record() -> Callable[[Path, Record], Path]:
    def write(folder: Path, record: Record) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.json").write_text(json.dumps(record))
        return folder / "record.json"

    return write


def _run(
    method: str = "otc",
    accuracy: float = 90.0,
    *,
    learned: float | None = None,
    others: dict[str, float] | None = None,
    seed: int = 0,
    memory: int | None = 500,
    data: str = "mnist",
    tasks: int = 5,
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> Record:
    """One class a task, 1 000 images each: `accuracy` at the end, `learned` just after learning.

    A_T = accuracy and F = learned - accuracy at the reported read-out; `others` maps further
    read-outs to their accuracy.
    """
    final = {"head": accuracy} | (others or {})
    evaluations = []
    for t in range(tasks):
        for readout, percent in final.items():
            fresh = percent if learned is None or t == tasks - 1 else learned
            right = [round(10 * (fresh if i == t else percent)) for i in range(tasks)]
            counts = {
                "correct": [right[i] if i <= t else 0 for i in range(tasks)],
                "total": [1000 if i <= t else 0 for i in range(tasks)],
            }
            evaluations.append(
                counts | {"task": t, "readout": readout, "images": "all", "step": t + 1}
            )
    known = {
        "tasks": [[i] for i in range(tasks)],
        "class_names": [f"class {i}" for i in range(tasks)],
        "evaluations": evaluations,
        "readout": "head",
        "readouts": list(final),
    }
    record = _record(method, seed=seed, memory=memory, data=data, settings=settings, **known)
    return record | changes


@pytest.fixture
def make_run() -> Callable[..., Record]:
    """Records with a chosen accuracy and forgetting, on as many tasks as the paper has."""
    return _run


# ------------------------------------------------------------------ Ray

TOKEN = secrets.token_hex(32)  # Ray remembers the first one it sees


@pytest.fixture
def ray_here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ray on loopback, with a token of this test's own and not the user's."""
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    return pytest.importorskip("ray", reason="the extra `cluster` is not installed")


@pytest.fixture
def two_nodes(ray_here: Any) -> Iterator[Any]:
    """A Ray cluster of two nodes with one core each, on loopback alone."""
    from ray.cluster_utils import Cluster

    node = {"node_ip_address": "127.0.0.1", "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    yield cluster
    cluster.shutdown()
