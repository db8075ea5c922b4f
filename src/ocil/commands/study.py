"""`ocil study FILE.toml`: a grid of runs, finished ones skipped, broken ones continued."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ocil import text
from ocil.commands.parsing import Positional, say
from ocil.commands.results import overviews
from ocil.errors import OcilError
from ocil.files import make_folder, write_atomic
from ocil.report.render import Cell, Strong, to_rich
from ocil.report.render import Table as Grid
from ocil.report.runs import Run
from ocil.run import latentfile
from ocil.run import record as records
from ocil.run.command import command
from ocil.run.folder import RunFolder
from ocil.run.reading import RECORD_NAME, find_records
from ocil.settings import to_mapping, with_role
from ocil.study import grid
from ocil.study.estimate import project
from ocil.study.grid import OWN_STREAMS, job_of_record, read_change, read_study
from ocil.study.jobs import Job, Runner, run_jobs
from ocil.study.places import at_a_time, check_place, open_runner

Found = list[tuple[Path, dict[str, Any]]]  # records with their paths


@dataclass(frozen=True)
class Study:
    """A grid of runs; finished ones are skipped."""

    file: Positional[Path]
    """TOML file with the grid, or the name of a shipped study."""
    preset: str | None = None
    """Preset of all jobs in place of the study's; methods that do not have it are left out."""
    set: tuple[str, ...] = ()
    """A setting of all jobs, such as tau=0.5; may be given several times."""
    workers: int | None = None
    """Runs at a time, one process each; unless given 1, and on a cluster as many as fit."""
    on: str = "local"
    """Where to run: local, ray (a cluster on this machine), ray:ADDRESS or slurm."""
    per_gpu: int = 1
    """Runs that share a GPU on Ray, for settings with --device cuda."""
    slurm: tuple[str, ...] = ()
    """An option of SLURM jobs as submitit names it, such as timeout_min=60; several times."""
    dry_run: bool = False
    """Only list the jobs and the time they are expected to take."""
    out: Path = Path("results")
    """Records go to OUT/STUDY/JOB/record.json."""
    data_dir: Path | None = None
    """Folder that holds a folder for each data set; else $OCIL_DATA, else the user's cache."""

    def __call__(self) -> None:
        """Count and estimate first, then run what is not finished."""
        if str(self.file) == OWN_STREAMS:
            self._own_streams()
            return
        check_place(self.on, self.workers, self.per_gpu)
        plan = read_study(self.file, self.preset, self.set)
        found = find_records(self.out) if self.out.is_dir() else []
        known = by_job(found)
        jobs = prepare(plan, self.out, known)
        waiting = [job for job in jobs if job.state == "waiting"]
        times = project([job.plan for job in waiting], [record for _, record in found])
        for job, seconds in zip(waiting, times, strict=True):
            job.expected = seconds
        say(summary(plan.name, jobs, at_a_time(self.on, self.workers)))
        if self.dry_run:
            say(to_rich(forecast(jobs)))
            return
        for job in jobs:
            _copy_from_elsewhere(job, known.get(job.plan.job, []))
        if any(job.state == "waiting" for job in jobs):
            self._run(jobs, self.out / plan.name)
        if any(job.state != "finished" for job in jobs):
            say(overview(jobs))
        # Records in the study's folder that it no longer asks for are left out.
        own, asked = find_records(self.out / plan.name), {job.plan.job for job in jobs}
        say(*overviews([Run(record) for _, record in own if job_of_record(record) in asked]))
        failed = [job for job in jobs if job.state == "failed"]
        if failed:
            first = failed[0].message
            raise OcilError(f"{len(failed)} of {len(jobs)} jobs failed; the first: {first}")

    def _own_streams(self) -> None:
        """The study whose jobs are no runs; data, order, method, seed and validate may be set."""
        from ocil.own_streams.trial import left, plan, run

        if (self.preset, self.workers or 1, self.on) != (None, 1, "local"):
            raise OcilError(
                f"Study {OWN_STREAMS} is run here, one trial at a time; leave out --preset, "
                "--workers and --on, and start a process for each --set data=STREAM."
            )
        trials, folder = plan(dict(map(read_change, self.set))), self.out / OWN_STREAMS
        waiting = left(trials, folder)
        say(f"Study {OWN_STREAMS}: {len(trials)} trials, {len(trials) - len(waiting)} finished.")
        for record in run([] if self.dry_run else waiting, folder, self.data_dir):
            say(f"{record['accuracy']:6.2f} %  {record['seconds']:7.1f} s  {record['command']}")

    def _run(self, jobs: list[Job], folder: Path) -> None:
        where = (self.on, self.workers, self.data_dir, folder, self.per_gpu, self.slurm)
        with closing(open_runner(*where)) as runner:
            run_shown(jobs, runner)


def by_job(found: Found) -> dict[str | None, Found]:
    """The records of each job id: hashing settings takes long for hundreds of records."""
    known: dict[str | None, Found] = {}
    for path, record in found:
        known.setdefault(job_of_record(record), []).append((path, record))
    return known


def prepare(plan: grid.Study, out: Path, known: dict[str | None, Found]) -> list[Job]:
    """A job for each plan; those with a record anywhere below `out` are finished already.

    A plan that wants latents is finished where they lie beside the record. In a folder that holds
    the record alone it cannot be run again: it gets one of its own.
    """
    jobs = []
    for each in plan.plans:
        job = Job(each, out / plan.name / each.job[:16])
        kept = known.get(each.job, [])
        if _usable(job, kept):
            job.state = "finished"
        elif kept and (job.folder / RECORD_NAME).exists():
            job.folder = job.folder.with_name(f"{each.job[:16]}-latents")
        jobs.append(job)
    return jobs


def _usable(job: Job, kept: Found) -> Found:
    """The records that answer a job: those with latents beside them if it wants latents."""
    wants = job.plan.settings.latents
    return [(p, r) for p, r in kept if not wants or p.with_name(latentfile.NAME).exists()]


def _copy_from_elsewhere(job: Job, kept: Found) -> None:
    """Take over the record of a finished job that only another study's folder holds.

    A record in a folder of this study counts under any name.
    """
    found = _usable(job, kept) if job.state == "finished" else []
    if not found or any(job.folder.parent in path.parents for path, _ in found):
        return
    path, record = found[0]
    make_folder(job.folder)
    if job.plan.settings.latents:
        write_atomic(job.folder / latentfile.NAME, path.with_name(latentfile.NAME).read_bytes())
    records.write(job.folder / RECORD_NAME, record)


def run_shown(
    jobs: list[Job], runner: Runner, watch: Callable[[list[Job]], None] = lambda _: None
) -> None:
    """Run the jobs, with a live overview on a terminal; `watch` may add to them."""
    console = Console(stderr=True)
    if not console.is_terminal:
        run_jobs(jobs, runner, watch)
        return

    def show(now: list[Job]) -> None:
        watch(now)
        live.update(overview(now))

    with Live(overview(jobs), console=console, refresh_per_second=2) as live:
        run_jobs(jobs, runner, show)


def summary(name: str, jobs: list[Job], workers: int | None) -> str:
    """One sentence: how many jobs, how many finished, how long the rest takes."""
    waiting = [job for job in jobs if job.state == "waiting"]
    said = f"Study {name}: {len(jobs)} jobs, {len(jobs) - len(waiting)} finished"
    if waiting:
        hours = sum(job.expected or 0 for job in waiting) / 3600 / (workers or 1)
        each = f" with {workers} worker(s)" if workers else " of work"
        said += f", {len(waiting)} to run in about {hours:.2f} hours{each}"
    unknown = sum(job.expected is None for job in waiting)
    return said + (f" ({unknown} of unknown length)." if unknown else ".")


def overview(jobs: list[Job]) -> Table:
    """What runs, what failed and what is left; finished ones only as a count."""
    table = Table(title=f"{sum(j.state == 'finished' for j in jobs)} of {len(jobs)} finished")
    for heading in ("state", "progress", "expected", "command"):
        table.add_column(heading, overflow="fold")
    shown = [job for job in jobs if job.state != "finished"]
    for job in sorted(shown, key=lambda j: j.state)[:30]:
        step, steps = RunFolder(job.folder).progress()
        progress = f"{100 * step / steps:.0f} %" if steps else ""
        expected = f"{job.expected / 60:.1f} min" if job.expected else ""
        words = command(job.plan.method, to_mapping(job.plan.settings))
        what = Text(text.plain(f"{words} {job.message}".strip(), 2000))
        table.add_row(job.state, progress, expected, what)
    if len(shown) > 30:
        table.add_row("", "", "", f"and {len(shown) - 30} more")
    return table


# Settings with a column of their own, and those that say nothing about the question asked.
_NAMED = with_role("machine", "keep", "name") | {"data", "memory", "seed"}


def forecast(jobs: Sequence[Job]) -> Grid:
    """For a dry run: a line for jobs that differ by memory and seed alone, and the sum of all."""
    lines: dict[tuple[str, str, str], list[Job]] = {}
    for job, shown in zip(jobs, differences(jobs), strict=True):
        lines.setdefault((job.plan.method, job.plan.settings.data, shown), []).append(job)
    rows: list[list[Cell]] = []
    for names, own in lines.items():
        sizes = sorted({job.plan.settings.memory or 0 for job in own} - {0})
        seeds = text.number_ranges([job.plan.settings.seed for job in own])
        rows.append([*names, ", ".join(map(str, sizes)), seeds, *_cost(own)])
    if len(rows) > 1:
        rows.append([Strong("all"), "", "", "", "", *(Strong(cell) for cell in _cost(jobs))])
    words = ("method", "data", "settings", "memory", "seeds")
    return Grid((*words, "to run", "hours"), rows, words)


def differences(jobs: Sequence[Job]) -> list[str]:
    """For each job the settings in which the jobs of its method and data set differ."""
    values = [to_mapping(job.plan.settings) for job in jobs]
    places = [(job.plan.method, job.plan.settings.data) for job in jobs]
    found = []
    for own, place in zip(values, places, strict=True):
        others = [v for v, p in zip(values, places, strict=True) if p == place]
        keys = [k for k in own if k not in _NAMED and any(v[k] != own[k] for v in others)]
        found.append(", ".join(f"{key}={text.setting(own[key])}" for key in keys))
    return found


def _cost(jobs: Sequence[Job]) -> tuple[str, str]:
    """How many of the jobs are left, and their hours; ? where one is of unknown length."""
    left = [job for job in jobs if job.state != "finished"]
    count = str(len(left)) if len(left) == len(jobs) else f"{len(left)} of {len(jobs)}"
    hours = sum(job.expected or 0.0 for job in left) / 3600
    unknown = "" if all(job.expected is not None for job in left) else " + ?"
    return count, f"{hours:.2f}{unknown}" if left else ""
