"""Jobs on this machine: one process each. Workers of clusters carry theirs out the same way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ocil.study.jobs import POLL, Ended, Job

MAX_ERRORS = 2000  # bytes of a worker's complaints that are looked at: the last line counts


class Process:
    """`ocil resume FOLDER` as a process of its own."""

    def __init__(
        self, folder: str, data_dir: str | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        words = [sys.executable, "-m", "ocil", "resume", folder]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  closed when the process has ended
        self.end: Ended | None = None
        self.process = subprocess.Popen(
            [*words, "--data-dir", data_dir] if data_dir else words,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,  # a pipe would fill up and block a worker that complains a lot
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C reaches the study first, which then asks its workers
        )

    def ended(self) -> Ended | None:
        if self.end is None and (code := self.process.poll()) is not None:
            size = self.errors.seek(0, os.SEEK_END)
            self.errors.seek(max(0, size - MAX_ERRORS))
            lines = self.errors.read().decode(errors="replace").strip().splitlines()
            self.errors.close()
            self.end = Ended(code, lines[-1] if lines else "")
        return self.end

    def stop(self) -> None:
        self.process.terminate()

    def wait(self) -> None:
        self.process.wait()
        self.ended()


class Local:
    """So many processes at a time."""

    def __init__(self, workers: int, data_dir: Path | None) -> None:
        self.workers, self.data_dir = workers, data_dir

    def room(self, running: Sequence[Job]) -> int:
        return self.workers - len(running)

    def start(self, jobs: Sequence[Job]) -> list[Process]:
        return [Process(**order(job, self.data_dir)) for job in jobs]

    def pause(self, running: Sequence[Job]) -> None:
        time.sleep(POLL)

    def close(self) -> None:
        """Nothing was taken."""


def order(job: Job, data_dir: Path | None) -> dict[str, Any]:
    """What a worker anywhere is told, as plain data: JSON, never objects."""
    threads = str(job.plan.settings.threads)
    environment = {} if threads == "auto" else {"OMP_NUM_THREADS": threads}
    if data_dir is None and (place := os.environ.get("OCIL_DATA")):
        environment["OCIL_DATA"] = str(Path(place).absolute())
    return {
        "folder": str(job.folder.absolute()),
        "data_dir": str(data_dir.absolute()) if data_dir else None,
        "environment": environment,
    }


def carry_out(job: str) -> str:
    """On a worker of a cluster: from an order as JSON to the end of its process as JSON."""
    process = Process(**json.loads(job))
    try:
        while (end := process.ended()) is None:
            time.sleep(POLL / 4)
    except KeyboardInterrupt:  # the study was stopped
        process.stop()
        process.wait()
        raise
    return json.dumps(end)
