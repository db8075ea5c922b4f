"""The jobs of a study, wherever they are carried out.

Each job is `ocil resume FOLDER`: a folder that holds settings only is started, one with a
checkpoint is continued. A worker that is lost is replaced and its successor goes on from there. A
job that another process works on is left to it: two studies with the same OUT share their jobs.
"""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, Protocol

from ocil.errors import Busy, OcilError, Stopped
from ocil.run.folder import Plan, RunFolder
from ocil.run.reading import read_record
from ocil.run.signals import stop_requests

MAX_ATTEMPTS = 5
POLL = 0.2  # seconds
LOST = -9  # exit code of a worker that went away, as of one that was killed
BUSY = "(another process is working on it)"


class Ended(NamedTuple):
    """How a worker ended: its exit code (below 0: by a signal) and its last words."""

    code: int
    said: str


class Worker(Protocol):
    """A job being carried out somewhere."""

    def ended(self) -> Ended | None:
        """None while it works."""
        ...

    def stop(self) -> None:
        """Ask it to write a checkpoint and end."""
        ...

    def wait(self) -> None:
        """Wait for it to end after `stop`."""
        ...


@dataclass
class Job:
    plan: Plan
    folder: Path
    expected: float | None = None  # seconds
    state: str = "waiting"  # waiting, running, finished, failed, pruned
    message: str = ""
    attempts: int = 0
    worker: Worker | None = field(default=None, repr=False)


class Runner(Protocol):
    """Where jobs are carried out."""

    def room(self, running: Sequence[Job]) -> int:
        """How many more may be handed over now."""
        ...

    def start(self, jobs: Sequence[Job]) -> Sequence[Worker]:
        """Hand jobs over, whose folders exist."""
        ...

    def pause(self, running: Sequence[Job]) -> None:
        """Wait for a moment, or until a worker has ended."""
        ...

    def close(self) -> None:
        """Give back what was taken."""
        ...


def run_jobs(jobs: list[Job], runner: Runner, watch: Callable[[list[Job]], None]) -> None:
    """Run all waiting jobs; `watch` is called a few times a second and may add to them."""
    with stop_requests() as asked:
        try:
            while any(job.state in ("waiting", "running") for job in jobs):
                for job in _running(jobs):
                    _check(job)
                _start(jobs, runner)
                watch(jobs)
                if asked:
                    raise Stopped(asked[0], "Stopped; the same command continues the study.")
                runner.pause(_running(jobs))
        finally:
            workers = [job.worker for job in jobs if job.worker and not job.worker.ended()]
            for worker in workers:
                worker.stop()
            for worker in workers:
                worker.wait()


def _running(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if job.state == "running"]


def _start(jobs: Sequence[Job], runner: Runner) -> None:
    room, ready = runner.room(_running(jobs)), list[Job]()
    for job in jobs:
        if len(ready) < room and job.state == "waiting" and _claim(job):
            ready.append(job)
    if ready:
        for job, worker in zip(ready, runner.start(ready), strict=True):
            job.worker, job.state, job.attempts = worker, "running", job.attempts + 1


def _claim(job: Job) -> bool:
    """Make the folder of a waiting job; False where another process has it or has finished it."""
    folder = RunFolder(job.folder)
    job.message = ""
    try:
        with folder.locked():
            if not folder.settings.exists():
                folder.create(job.plan)
    except Busy:
        job.message = BUSY
        return False
    try:
        if folder.record.exists() and read_record(folder.record):
            _finish(job)
    except OcilError:
        pass  # the worker will say what is wrong with it
    return job.state == "waiting"


def _check(job: Job) -> None:
    """Notice that a worker has ended, and how."""
    if job.worker is None or (ended := job.worker.ended()) is None:
        return
    code, said = ended
    if code == 0:
        _finish(job)
    elif code == Busy.exit_code:  # another process was quicker
        job.state, job.message, job.attempts = "waiting", BUSY, job.attempts - 1
    elif (code < 0 or code > 128) and job.attempts < MAX_ATTEMPTS:  # by a signal, asked or not
        job.state = "waiting"
    else:
        job.state, job.message = "failed", said or f"exit code {code}"


def _finish(job: Job) -> None:
    job.state = "finished"
    # The record is what a study is for; the checkpoints of a large grid fill disks.
    shutil.rmtree(RunFolder(job.folder).checkpoints, ignore_errors=True)


def needed(package: str, what: str, extra: str = "cluster") -> ModuleType:
    """A package of an extra, or a sentence that says how to install it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        install = f"install it with `pip install ocil[{extra}]`"
        raise OcilError(f"{what} needs {package}; {install}.") from None
