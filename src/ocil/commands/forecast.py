"""What `ocil study --dry-run` prints: the jobs in few lines, with the hours they will take."""

from __future__ import annotations

from collections.abc import Sequence

from ocil import text
from ocil.report.render import Cell, Strong, Table
from ocil.settings import to_mapping, with_role
from ocil.study.local import Job

# Settings with a column of their own, and those that say nothing about the question asked.
_NAMED = with_role("machine", "keep", "name") | {"data", "memory", "seed"}


def forecast(jobs: Sequence[Job]) -> Table:
    """A line for the jobs that differ by memory and seed alone, and the sum of all."""
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
    return Table((*words, "to run", "hours"), rows, words)


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
