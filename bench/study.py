"""What running a study costs beside its jobs: `python bench/study.py` (results/bench/study.md).

- The same small jobs by two local workers and by Ray with two cores: seconds a job, by the clock
  and of the processor, and what Ray adds to a job.
- Jobs that only sleep: how Ray's scheduling and the study's own loop grow with their number.
- A study of 2 000 jobs: seconds until its overview is there, and until finished ones are skipped.

Ray's start is measured by itself. Other processes disturb the clock; the load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ocil.commands.study import by_job, overview, prepare
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.run import record as records
from ocil.run.folder import Plan, RunFolder
from ocil.run.loop import resume_run
from ocil.run.reading import find_records
from ocil.study.estimate import project
from ocil.study.grid import Study, read_study
from ocil.study.jobs import Job, Runner, run_jobs
from ocil.study.local import Local
from ocil.study.ray import Ray

SMALL = {"data": "digits", "limit_per_class": 20, "memory": 50, "width": 16, "eval_every": 0}
NAP = 0.01  # seconds
BLOCK = 10  # jobs


def sleep(_: str) -> str:
    """Stands for `carry_out`."""
    time.sleep(NAP)
    return '[0, ""]'


def plans(count: int) -> list[Plan]:
    """Digits in 20 steps, each with its own seed."""
    values, preset = registry.resolve("er", SMALL)
    return [
        Plan("er", registry.make_settings("er", values | {"seed": seed}), preset, "bench")
        for seed in range(count)
    ]


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor with all processes that ended meanwhile."""
    began, spent = time.perf_counter(), _processor()
    work()
    return time.perf_counter() - began, _processor() - spent


def _processor() -> float:
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in own)


def throughput(runner: Runner, count: int) -> float:
    """Seconds by the clock for so many small jobs."""
    with tempfile.TemporaryDirectory() as out:
        jobs = [Job(plan, Path(out) / plan.job[:16]) for plan in plans(count)]
        seconds, _ = timed(lambda: run_jobs(jobs, runner, lambda _: None))
        if any(job.state != "finished" for job in jobs):
            raise OcilError(f"A job failed: {next(j.message for j in jobs if j.message)}")
    return seconds


def sleeping(runner: Ray, count: int) -> float:
    """Seconds by the clock for so many jobs that sleep."""
    usual, runner.task = runner.task, runner.ray.remote(max_retries=0)(sleep)
    with tempfile.TemporaryDirectory() as out:
        jobs = [Job(plan, Path(out) / plan.job[:16]) for plan in plans(count)]
        seconds, _ = timed(lambda: run_jobs(jobs, runner, lambda _: None))
    runner.task = usual
    return seconds


def large(count: int) -> list[tuple[str, tuple[float, float]]]:
    """A study of so many jobs: all waiting with one record to estimate from, then all finished."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "large.toml", Path(folder) / "out"
        grid = "\n".join(f"{key} = {json.dumps(value)}" for key, value in SMALL.items())
        seeds = json.dumps(list(range(count)))
        file.write_text(f'name = "large"\n[[grid]]\nmethod = "er"\nseed = {seeds}\n{grid}\n')
        first = read_study(file).plans[0]  # torch is loaded by now
        RunFolder(out / "large" / first.job[:16]).create(first)
        made = resume_run(out / "large" / first.job[:16])
        waiting = timed(lambda: _overview(read_study(file), out))
        for plan in read_study(file).plans[1:]:
            seed = {"seed": plan.settings.seed}
            place = out / "large" / plan.job[:16]
            place.mkdir()
            of = {"job": plan.job, "settings": made["settings"] | seed}
            records.write(place / "record.json", made | seed | of)
        finished = timed(lambda: _overview(read_study(file), out))
    return [("overview, one finished", waiting), ("overview, all finished", finished)]


def _overview(study: Study, out: Path) -> None:
    found = find_records(out)
    jobs = prepare(study, out, by_job(found))
    left = [job.plan for job in jobs if job.state == "waiting"]
    project(left, [record for _, record in found])
    overview(jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--sleeping", type=int, nargs="*", default=[100, 1000, 10_000])
    parser.add_argument("--large", type=int, default=2000)
    asked = parser.parse_args()
    print(f"{'':34} {'jobs':>6} {'seconds':>9} {'ms a job':>9} {'load':>6}")
    for name, (clock, spent) in large(asked.large) if asked.large else ():
        say(name, asked.large, clock, f"{spent:.2f} s of the processor")
    began = time.perf_counter()
    runner = Ray("", 2, None)
    say("start of Ray", 1, time.perf_counter() - began)
    runner.workers = None  # as many as fit, and as many again in its queue
    for count in asked.sleeping:
        say(f"Ray, jobs that sleep {1000 * NAP:.0f} ms", count, sleeping(runner, count))
    sums, done = [0.0, 0.0], 0
    while done < asked.jobs:  # by turns, for the load changes
        count = min(BLOCK, asked.jobs - done)
        for place, each in enumerate((Local(2, None), runner)):
            sums[place] += throughput(each, count)
        done += count
        more = 2 * (sums[1] - sums[0]) / done
        say("two local workers", done, sums[0])
        say("Ray, two cores", done, sums[1], f"{more:+.2f} s a job on its core")
    runner.close()


def say(what: str, count: int, seconds: float, more: str = "") -> None:
    """A row of the table."""
    load, each = os.getloadavg()[0], 1000 * seconds / count
    print(f"{what:34} {count:6} {seconds:9.2f} {each:9.1f} {load:6.1f}  {more}", flush=True)


if __name__ == "__main__":
    main()
