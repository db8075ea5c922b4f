"""Run jobs on this machine: one process a job, as many at a time as asked for.

Each job is `ocil resume FOLDER`: a folder that holds settings only is started, one with a
checkpoint is continued. A worker that is killed is started again and goes on from there. A job
that another process works on is left to it: two studies with the same OUT share their jobs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ocil.errors import Busy, OcilError, Stopped
from ocil.run.folder import Plan, RunFolder
from ocil.run.process import stop_requests
from ocil.run.reading import read_record

MAX_ATTEMPTS = 5
POLL = 0.2  # seconds
MAX_ERRORS = 2000  # bytes of a worker's complaints that are looked at: the last line counts
BUSY = "(another process is working on it)"


@dataclass
class Job:
    plan: Plan
    folder: Path
    expected: float | None = None  # seconds
    state: str = "waiting"  # waiting, running, finished, failed
    message: str = ""
    attempts: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    errors: IO[bytes] | None = field(default=None, repr=False)  # what the worker complains of


def run_jobs(
    jobs: list[Job], workers: int, data_dir: Path | None, watch: Callable[[list[Job]], None]
) -> None:
    """Run all waiting jobs; `watch` is called a few times a second with all of them."""
    with stop_requests() as asked:
        try:
            while any(job.state in ("waiting", "running") for job in jobs):
                for job in jobs:
                    if job.state == "running":
                        _check_worker(job)
                free = workers - sum(job.state == "running" for job in jobs)
                for job in [job for job in jobs if job.state == "waiting"]:
                    if free > 0 and _claim(job):
                        _start(job, data_dir)
                        free -= 1
                watch(jobs)
                if asked:
                    raise Stopped(asked[0], "Stopped; the same command continues the study.")
                time.sleep(POLL)
        finally:
            _stop_workers(jobs)


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


def _start(job: Job, data_dir: Path | None) -> None:
    words = [sys.executable, "-m", "ocil", "resume", str(job.folder)]
    if data_dir:
        words += ["--data-dir", str(data_dir)]
    job.state, job.attempts = "running", job.attempts + 1
    threads = str(job.plan.settings.threads)
    limits = {} if threads == "auto" else {"OMP_NUM_THREADS": threads}
    job.errors = tempfile.TemporaryFile()  # noqa: SIM115  closed when the worker has ended
    job.process = subprocess.Popen(
        words,
        stdout=subprocess.DEVNULL,
        stderr=job.errors,  # a pipe would fill up and block a worker that complains a lot
        env=os.environ | limits,
        start_new_session=True,  # Ctrl-C reaches the study first, which then asks its workers
    )


def _check_worker(job: Job) -> None:
    """Notice that a worker has ended, and how."""
    if not job.process or not job.errors or (code := job.process.poll()) is None:
        return
    size = job.errors.seek(0, os.SEEK_END)
    job.errors.seek(max(0, size - MAX_ERRORS))
    lines = job.errors.read().decode(errors="replace").strip().splitlines()
    job.errors.close()
    if code == 0:
        _finish(job)
    elif code == Busy.exit_code:  # another process was quicker
        job.state, job.message, job.attempts = "waiting", BUSY, job.attempts - 1
    elif (code < 0 or code > 128) and job.attempts < MAX_ATTEMPTS:  # by a signal, asked or not
        job.state = "waiting"
    else:
        job.state, job.message = "failed", lines[-1] if lines else f"exit code {code}"


def _finish(job: Job) -> None:
    job.state = "finished"
    # The record is what a study is for; the checkpoints of a large grid fill disks.
    shutil.rmtree(RunFolder(job.folder).checkpoints, ignore_errors=True)


def _stop_workers(jobs: list[Job]) -> None:
    """Ask running workers to write a checkpoint and stop, and wait for them."""
    running = [job for job in jobs if job.state == "running"]
    for job in running:
        if job.process:
            job.process.terminate()
    for job in running:
        if job.process and job.errors:
            job.process.wait()
            job.errors.close()
