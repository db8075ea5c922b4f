"""Jobs as tasks of a Ray cluster: one that runs somewhere, or one on this machine alone.

Ray hands out a job as a JSON string; records and checkpoints go to the shared path of the study. A
task whose worker or node is lost is handed out again and goes on from the job's last checkpoint.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ocil.errors import OcilError, brief
from ocil.study.jobs import LOST, POLL, Ended, Job, needed
from ocil.study.local import carry_out, order

LAST_WORDS = 60.0  # seconds in which a stopped task writes its checkpoint
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def connect(address: str, cores: int | None) -> Any:
    """Ray, in touch with the cluster at an address, or with one of its own on loopback alone."""
    if not address or address.rpartition(":")[0] in LOOPBACK:
        # Ray's only switch for it: else its ports are open to the network on Linux.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray: Any = needed("ray", "--on ray")
    alone = {"num_cpus": cores or os.cpu_count(), "include_dashboard": False}
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level="error",
            **({} if address else alone),
        )
    except Exception as error:  # Ray raises that itself when a start takes too long
        where = f"the Ray cluster at {address}" if address else "a Ray cluster of its own"
        raise OcilError(
            f"Cannot reach {where} ({brief(error)}); check it with `ray status`."
        ) from error
    return ray


class Task:
    """A job that was handed to Ray."""

    def __init__(self, ray: Any, ref: Any) -> None:
        self.ray, self.ref, self.end = ray, ref, None

    def ended(self) -> Ended | None:
        if self.end is None and self.ray.wait([self.ref], timeout=0)[0]:
            try:
                self.end = Ended(*json.loads(self.ray.get(self.ref)))
            except self.ray.exceptions.RayTaskError as error:  # ocil is not there, or cancelled
                self.end = Ended(1, f"A Ray worker failed: {brief(error.cause or error)}.")
            except self.ray.exceptions.RayError as error:
                self.end = Ended(LOST, f"A Ray worker was lost: {brief(error)}.")
        return self.end

    def stop(self) -> None:
        self.ray.cancel(self.ref)  # a KeyboardInterrupt in `carry_out`

    def wait(self) -> None:
        self.ray.wait([self.ref], timeout=LAST_WORDS)


class Ray:
    """Runs at most `workers` jobs at a time; None: as many as the cluster has room for."""

    def __init__(
        self, address: str, workers: int | None, data_dir: Path | None, per_gpu: int = 1
    ) -> None:
        self.ray: Any = connect(address, workers)
        self.workers, self.data_dir, self.per_gpu = workers, data_dir, per_gpu
        self.task = self.ray.remote(max_retries=0)(carry_out)  # `run_jobs` tries again

    def room(self, running: Sequence[Job]) -> int:
        """Up to twice what fits: no core waits for the next job, and an autoscaler sees demand."""
        if self.workers:
            return self.workers - len(running)
        cores = self.ray.cluster_resources().get("CPU", 0)
        each = max((self.needs(job)["num_cpus"] for job in running), default=1)
        return max(2, int(2 * cores / each)) - len(running)

    def needs(self, job: Job) -> dict[str, float]:
        """Cores and share of a GPU, by the job's settings."""
        settings, most = job.plan.settings, 1
        if settings.threads == "auto":
            most = max(node["Resources"].get("CPU", 1) for node in self.ray.nodes())
        gpus = 1 / self.per_gpu if settings.device.startswith("cuda") else 0
        return {"num_cpus": most if settings.threads == "auto" else settings.threads} | (
            {"num_gpus": gpus} if gpus else {}
        )

    def start(self, jobs: Sequence[Job]) -> list[Task]:
        orders = [json.dumps(order(job, self.data_dir)) for job in jobs]
        refs = [
            self.task.options(**self.needs(job)).remote(text)
            for job, text in zip(jobs, orders, strict=True)
        ]
        return [Task(self.ray, ref) for ref in refs]

    def pause(self, running: Sequence[Job]) -> None:
        refs = [job.worker.ref for job in running if isinstance(job.worker, Task)]
        if refs:
            self.ray.wait(refs, timeout=POLL)
        else:
            time.sleep(POLL)

    def close(self) -> None:
        self.ray.shutdown()
