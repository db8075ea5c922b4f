"""`ocil learn` by two at once, with Ctrl-C and with kill -9 at random moments.

Commands run in processes of their own that a server forks, with ocil imported already: real signals
and real locks without seconds of start. Moments are drawn from fixed seeds.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from ocil import Classifier, load
from ocil.errors import OcilError
from storms import Storm

SAMPLES = 3000  # of which every 500 are saved
NEW = ("--method", "er", "--memory", "200", "--lr", "0.01")
_SERVER = get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "ocil.commands.learn",
        "ocil.learners.otc",
        "ocil.learners.er",
        "rich.progress",
        "torch._dynamo",
    ]
)


def _main(words: list[str], said: str) -> None:
    """The command line, with what it says in a file."""
    from ocil.cli import main

    handle = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    main(words)


class Command:
    """`ocil learn DATA --model MODEL MORE` in a process of its own."""

    def __init__(self, data: Path, model: Path, *more: str) -> None:
        self.file = data.with_suffix(".said")
        words = ["learn", str(data), "--model", str(model), *more]
        self.process = _SERVER.Process(target=_main, args=(words, str(self.file)))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def end(self) -> tuple[int, str]:
        """Its exit code and what it said, in one line."""
        self.process.join(120)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            return -1, "it hung for 120 seconds"
        said = " ".join(self.file.read_text().split()) if self.file.exists() else ""
        self.file.unlink(missing_ok=True)
        code = self.process.exitcode
        self.process.close()
        return -1 if code is None else code, said

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.is_alive() and not until():
            time.sleep(0.0005)


def vectors(path: Path, count: int, first: int) -> Path:
    """`count` vectors of four classes, numbered from `first`."""
    y = np.arange(count) % 4
    x = np.eye(8)[y] + np.random.default_rng(first).normal(size=(count, 8)) / 4
    np.savez(path, x=x.astype(np.float32), y=y + first)
    return path


def concurrent(times: int, folder: Path) -> Storm:
    """Two at once on one model, new or old: who ends with 0 has taught it all, who is refused none.

    Every third time nobody waits.
    """
    storm = Storm("two at once", times)
    data = [vectors(folder / f"{name}.npz", 200, 4 * i) for i, name in enumerate("ab")]
    model, old = folder / "m.ocil", folder / "old.ocil"
    Classifier("er", memory=50).fit(np.eye(8), [8] * 8).save(old)
    draw = random.Random(0)
    for number in range(times):
        model.unlink(missing_ok=True)
        expected = Counter[int]()
        if number % 2:
            shutil.copy(old, model)
            expected.update({8: 8})
        wait = "0" if number % 3 == 2 else "60"
        commands = []
        for path in data:
            commands.append(Command(path, model, "--wait", wait))
            time.sleep(draw.uniform(0, 0.05))
        for path, command in zip(data, commands, strict=True):
            code, said = command.end()
            refused = code == 2 and "Another process is writing" in said
            storm.check(code == 0 or (refused and wait == "0"), number, f"{code}: {said}")
            storm.count("refused", refused)
            if code == 0:
                expected.update(np.load(path)["y"].tolist())
        found = load(model).counts_
        storm.check(found == expected, number, f"learned {found}, expected {dict(expected)}")
        _check_left(storm, number, folder, {*data, model, old})
    return storm


def interrupts(times: int, folder: Path) -> Storm:
    """Ctrl-C at a random moment, then the same command: the state of one left alone."""
    return _broken(Storm("Ctrl-C", times), signal.SIGINT, folder)


def kills(times: int, folder: Path) -> Storm:
    """kill -9 at a random moment, every other time while a file is being written."""
    return _broken(Storm("kill -9", times), signal.SIGKILL, folder)


def _broken(storm: Storm, number: int, folder: Path) -> Storm:
    data, model = vectors(folder / "a.npz", SAMPLES, 0), folder / "m.ocil"
    began = time.monotonic()
    code, said = Command(data, model, *NEW).end()
    seconds = time.monotonic() - began
    storm.check(code == 0, -1, f"left alone it ends with {code}: {said}")
    wanted, draw = load(model).state_sha256(), random.Random(number)
    for time_ in range(storm.times):
        model.unlink()
        command = Command(data, model, *NEW)
        if number == signal.SIGKILL and time_ % 2:
            _wait_for_write(command, model, draw.randrange(SAMPLES // 500))
        else:
            command.wait(draw.uniform(0, seconds))
        command.send(number)
        _check_broken(storm, time_, command, model)
        code, said = Command(data, model, *NEW).end()
        storm.check(code == 0, time_, f"going on ends with {code}: {said}")
        again = load(model)
        learned = sum(again.counts_.values())
        storm.check(learned == SAMPLES, time_, f"{learned} of {SAMPLES} samples were learned")
        storm.check(again.state_sha256() == wanted, time_, "the state is another one")
        _check_left(storm, time_, folder, {data, model})
    return storm


def _wait_for_write(command: Command, model: Path, number: int) -> None:
    """Until a temporary file of the write with this number is there."""
    temporary = model.with_name(f".{model.name}.{command.pid}.tmp")
    for _ in range(number):
        command.wait(60, temporary.exists)
        command.wait(60, lambda: not temporary.exists())
    command.wait(60, temporary.exists)


def _check_broken(storm: Storm, number: int, command: Command, model: Path) -> None:
    """After a signal: the model is whole or not there, and knows what the command says."""
    code, said = command.end()
    left = any(p.suffix == ".tmp" for p in model.parent.iterdir())
    storm.count("temporary file left by it", left)
    learned = 0
    if model.exists():
        try:
            found = load(model)
            learned = sum(found.counts_.values()) + found.pending_
        except OcilError as error:
            storm.check(False, number, f"the model is not whole: {error}")
    storm.count("in mid-learning", 0 < learned < SAMPLES)
    storm.count("before anything was saved", not learned)
    left = load(model)._learned if learned == SAMPLES else None
    finished = left is not None and not left.unfinished
    if finished:  # it came after the end: what follows would rightly learn all again
        storm.count("after the end")
        model.unlink()
    if code == 128 + signal.SIGINT and "Stopped" in said:
        holds = f"Stopped after {learned} of {SAMPLES} samples" in said
        storm.check(holds, number, f"{learned} are learned, but: {said}")
    elif code not in (-signal.SIGKILL, 128 + signal.SIGINT, -signal.SIGINT, 0):
        storm.check(False, number, f"{code}: {said}")
    elif code == 128 + signal.SIGINT:
        storm.check(not learned or finished, number, f"{learned} are learned, but: {said}")


def _check_left(storm: Storm, number: int, folder: Path, wanted: set[Path]) -> None:
    left = sorted(p.name for p in set(folder.iterdir()) - wanted)
    storm.check(not left, number, f"left over: {', '.join(left)}")
