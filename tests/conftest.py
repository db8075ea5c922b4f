"""Small, cheap runs on the bundled digits, and the command line as a function."""

from __future__ import annotations

import os
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
