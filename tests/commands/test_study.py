"""The table of a dry run: few lines, and their hours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ocil.commands.study import forecast
from ocil.study.jobs import Job


def job(plan: Any, seconds: float | None = 3600.0, state: str = "waiting") -> Job:
    return Job(plan, Path("nowhere"), expected=seconds, state=state)


def test_jobs_that_differ_by_memory_and_seed_are_one_line(plan: Callable[..., Any]) -> None:
    jobs = [job(plan(memory=m, seed=s)) for m in (500, 30) for s in (0, 1, 2, 5)]
    table = forecast(jobs)
    assert table.columns == ("method", "data", "settings", "memory", "seeds", "to run", "hours")
    assert table.rows == [["er", "digits", "", "30, 500", "0-2, 5", "8", "8.00"]]


def test_settings_that_differ_within_a_method_are_shown_and_all_are_summed(
    plan: Callable[..., Any],
) -> None:
    jobs = [
        job(plan(lr=0.1), 1800.0),
        job(plan(lr=0.2, seed=1), 1800.0),
        job(plan(lr=0.2), state="finished"),
        job(plan("finetune"), state="finished"),
        job(plan(data="mine"), None),
    ]
    assert forecast(jobs).rows == [
        ["er", "digits", "lr=0.1", "30", "0", "1", "0.50"],
        ["er", "digits", "lr=0.2", "30", "0-1", "1 of 2", "0.50"],
        ["finetune", "digits", "", "", "0", "0 of 1", ""],
        ["er", "mine", "", "30", "0", "1", "0.00 + ?"],
        ["all", "", "", "", "", "3 of 5", "1.00 + ?"],
    ]


def test_how_a_run_is_carried_out_is_not_shown(plan: Callable[..., Any]) -> None:
    jobs = [job(plan(threads=1)), job(plan(threads=2, latents=True, seed=1))]
    assert len(forecast(jobs).rows) == 1
