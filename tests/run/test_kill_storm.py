"""Thirty kill -9 at random moments of one run, and the same bits as the run left alone.

The moments are drawn from a fixed seed but counted in checkpoints seen in the events file, so that
they fall into the run on slow and on fast machines alike; nothing in the product waits for them.
"""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil.run.folder import RunFolder

_REAL = os.environ.get("OCIL_DATA", "")  # before fixtures hide it
KILLS = 30
MID_RUN = 20
Start = Callable[..., subprocess.Popen[str]]


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes()


def synthetic(root: Path) -> Path:
    """A data set of MNIST's form: 1000 noisy images of each of ten patterns."""
    draw = np.random.default_rng(0)
    patterns = draw.integers(0, 200, (10, 28, 28))
    (root / "mnist").mkdir(parents=True)
    for name, count in (("train", 10_000), ("t10k", 2_000)):
        labels = np.arange(count) % 10
        images = patterns[labels] + draw.integers(0, 56, (count, 28, 28))
        (root / "mnist" / f"{name}-images-idx3-ubyte").write_bytes(idx(images.astype(np.uint8)))
        (root / "mnist" / f"{name}-labels-idx1-ubyte").write_bytes(idx(labels.astype(np.uint8)))
    return root


class Watched:
    """A run in a process of its own, and what its events file tells of it."""

    def __init__(self, start: Start, words: list[Any], out: Path) -> None:
        self.events, self.before = out / "events.jsonl", 0
        if self.events.exists():
            self.before = self.events.stat().st_size
        self.process = start(words, stdout=subprocess.DEVNULL)

    def told(self) -> list[dict[str, Any]]:
        """Whole lines that this process has added."""
        if not self.events.exists():
            return []
        with open(self.events, "rb") as file:
            file.seek(self.before)
            lines = file.read().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith(b"{") and line[-1:] == b"}"]

    def saved(self) -> int:
        return sum(e["event"] == "checkpoint" for e in self.told())

    def wait(self, until: Callable[[], bool]) -> None:
        while self.process.poll() is None and not until():
            time.sleep(0.003)

    def finish(self) -> str:
        said = self.process.communicate()[1]
        assert self.process.returncode == 0, said
        return said

    def kill(self) -> bool:
        """Kill it; whether it was killed between its first step and its end."""
        self.process.kill()
        self.process.communicate()
        told = {e["event"] for e in self.told()}
        begun = bool(told & {"start", "resume"})
        return begun and "end" not in told and self.process.returncode == -9


def alone(start: Start, words: list[Any], out: Path) -> float:
    """Carry out the run in one go; the seconds from one checkpoint to the next."""
    run = Watched(start, words, out)
    run.wait(lambda: run.saved() >= 5)
    began, saved = time.monotonic(), run.saved()
    run.wait(lambda: run.saved() >= saved + 20)
    seconds = (time.monotonic() - began) / 20
    run.finish()
    return seconds


@pytest.mark.slow
def test_thirty_kills_and_the_same_bits(tmp_path: Path, start_ocil: Start) -> None:
    real = (Path(_REAL) / "mnist").is_dir() if _REAL else False
    data = Path(_REAL) if real else synthetic(tmp_path / "data")
    settings = ["--data", "mnist", "--limit-per-class", "1000", "--checkpoint-every", "20"]
    words = ["run", "er", *settings, "--data-dir", data]
    interval = alone(start_ocil, [*words, "--out", tmp_path / "alone"], tmp_path / "alone")

    draw, out, mid_run, steps = random.Random(1), tmp_path / "storm", 0, 0
    for number in range(KILLS):
        again = ["resume", out, "--data-dir", data]
        fresh = not (out / "settings.json").exists()
        run = Watched(start_ocil, [*words, "--out", out] if fresh else again, out)
        if number % 6 == 5:  # somewhere before or soon after its first step
            time.sleep(draw.uniform(0, 3))
        else:
            run.wait(lambda run=run: bool(run.told()))
            # Not past the end: what is left is shared out among the kills to come.
            most = min(2.0, (1000 - steps) / 20 / (KILLS - number) - 0.5)
            checkpoints, rest = divmod(draw.uniform(0, max(0.4, most)), 1)
            run.wait(lambda run=run, wanted=checkpoints: run.saved() >= wanted)
            time.sleep(rest * interval)
        mid_run += run.kill()
        steps = max([steps, *(e["step"] for e in run.told() if e["event"] == "checkpoint")])
        assert not (out / "record.json").exists(), f"kill {number} came after the end"

    assert mid_run >= MID_RUN
    Watched(start_ocil, ["resume", out, "--data-dir", data], out).finish()
    one, other = (json.loads((d / "record.json").read_bytes()) for d in (tmp_path / "alone", out))
    assert other["state_sha256"] == one["state_sha256"]
    assert other["accuracy_matrix"] == one["accuracy_matrix"]
    assert other["evaluations"] == one["evaluations"]
    starts = [e for e in RunFolder(out).read_events() if e["event"] in ("start", "resume")]
    assert len(starts) > MID_RUN
    assert sum(e["step"] > 0 for e in starts) >= MID_RUN
    left = sorted(p.name for p in (out / "checkpoints").iterdir())
    assert len(left) == 4, left  # two checkpoints, nothing that a kill left behind
