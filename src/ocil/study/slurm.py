"""Jobs as arrays of a SLURM cluster, through submitit; the study waits and hands out what was lost.

submitit keeps what it hands over (a function's name and a JSON string) and what comes back as
pickle files of its own in OUT/STUDY/.slurm: that folder must be yours alone to write.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ocil.errors import OcilError, brief
from ocil.study.jobs import LOST, Ended, Job, needed
from ocil.study.local import carry_out, order

POLL = 1.0  # seconds
LAST_WORDS = 60.0  # seconds in which a cancelled job writes its checkpoint
MOST = 1000  # jobs of an array: SLURM's usual limit


class Submitted:
    """A job that was handed to submitit."""

    def __init__(self, job: Any) -> None:
        self.job, self.end = job, None

    def ended(self) -> Ended | None:
        if self.end is None and self.job.done():
            error = self.job.exception()
            if error is None:
                self.end = Ended(*json.loads(self.job.result()))
            else:  # out of time, preempted, or its node is gone
                self.end = Ended(LOST, f"A SLURM job was lost: {brief(error)}.")
        return self.end

    def stop(self) -> None:
        self.job.cancel(check=False)

    def wait(self) -> None:
        until = time.monotonic() + LAST_WORDS
        while self.ended() is None and time.monotonic() < until:
            time.sleep(POLL / 4)


class Slurm:
    """Hands over all jobs at once, or `workers` at a time; `cluster` local: processes, to try it.

    `options` are those of submitit's AutoExecutor, such as timeout_min or slurm_partition.
    """

    def __init__(
        self,
        cluster: str,
        workers: int | None,
        data_dir: Path | None,
        folder: Path,
        options: Mapping[str, Any],
    ) -> None:
        submitit: Any = needed("submitit", "--on slurm")
        self.workers = workers or (1 if cluster == "local" else MOST)
        self.data_dir = data_dir
        try:
            self.executor = submitit.AutoExecutor(folder.absolute(), cluster or "slurm")
            self.executor.update_parameters(timeout_min=24 * 60, name="ocil")
            self.executor.update_parameters(**options)
        except (RuntimeError, ValueError, TypeError, NameError) as error:
            raise OcilError(
                f"Cannot hand jobs to SLURM ({brief(error)}); start the study where `sbatch` is, "
                "with --slurm options of submitit such as timeout_min=60."
            ) from error

    def room(self, running: Sequence[Job]) -> int:
        return self.workers - len(running)

    def start(self, jobs: Sequence[Job]) -> list[Submitted]:
        """An array for the jobs that need the same."""
        kinds: dict[str, list[Job]] = {}
        for job in jobs:
            kinds.setdefault(json.dumps(needs(job)), []).append(job)
        found: dict[int, Submitted] = {}
        for kind, own in kinds.items():
            self.executor.update_parameters(**json.loads(kind))
            orders = [json.dumps(order(job, self.data_dir)) for job in own]
            for job, handed in zip(own, self.executor.map_array(carry_out, orders), strict=True):
                found[id(job)] = Submitted(handed)
        return [found[id(job)] for job in jobs]

    def pause(self, running: Sequence[Job]) -> None:
        time.sleep(POLL)

    def close(self) -> None:
        """Every job has ended."""


def needs(job: Job) -> dict[str, int]:
    """Cores and GPUs, by the job's settings."""
    settings = job.plan.settings
    cores = {} if settings.threads == "auto" else {"cpus_per_task": settings.threads}
    return {**cores, "gpus_per_node": 1} if settings.device.startswith("cuda") else cores
