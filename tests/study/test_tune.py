"""A search: what is tried, what is given up, what a killed one leaves, what it ends with."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ocil.commands.tune import picture
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.run.folder import RunFolder
from ocil.run.loop import resume_run
from ocil.study.grid import read_study
from ocil.study.jobs import Ended, Job, run_jobs
from ocil.study.tune import STARTUP, Search, is_range, search_space

GIVEN = {"data": "digits", "limit_per_class": 6, "memory": 20, "width": 16, "eval_every": 2}


class Done:
    """A worker that has carried out its job."""

    stopped = False

    def ended(self) -> Ended | None:
        return Ended(0, "")

    def stop(self) -> None:
        self.stopped = True

    def wait(self) -> None:
        """It has ended already."""


class Here:
    """Carries out a job at a time in this process, and is killed before the job number `last`."""

    def __init__(self, last: int | None = None) -> None:
        self.last, self.jobs = last, list[Job]()

    def room(self, running: Sequence[Job]) -> int:
        return 1 - len(running)

    def start(self, jobs: Sequence[Job]) -> list[Any]:
        if len(self.jobs) == self.last:
            raise ConnectionAbortedError
        self.jobs += jobs
        for job in jobs:
            resume_run(job.folder)
        return [Done() for _ in jobs]

    def pause(self, running: Sequence[Job]) -> None:
        """Nothing runs meanwhile."""

    def close(self) -> None:
        """Nothing was taken."""


def search(folder: Path, runner: Here, trials: int = 3, seeds: int = 1) -> Search:
    pytest.importorskip("optuna", reason="the extra `tune` is not installed")
    folder.mkdir(exist_ok=True)
    return Search("er", dict(GIVEN), trials, seeds, folder, runner)


def carry_on(found: Search) -> None:
    jobs: list[Job] = []
    found.watch(jobs)
    run_jobs(jobs, found.runner, found.watch)


# ------------------------------------------------------------------ what is searched


@pytest.mark.parametrize("method", registry.names())
def test_a_method_takes_every_value_that_it_declares(method: str) -> None:
    for name, field in registry.info(method).fields.items():
        for value in field.search:
            assert field.coerced(name, value, "the search") == value
            registry.make_settings(method, registry.resolve(method, {name: value})[0])
        if is_range(field):
            assert field.search[0] < field.search[1]


def test_what_is_given_or_without_effect_is_not_searched() -> None:
    assert set(search_space("er", {})) == {"lr", "ema"}
    assert set(search_space("er", {"lr": 0.1})) == {"ema"}
    assert set(search_space("derpp", {})) == {"lr", "ema", "alpha", "beta"}
    with pytest.raises(OcilError, match="Method slda has no setting to search here"):
        search_space("slda", {})


# ------------------------------------------------------------------ the search


def test_trials_are_on_held_out_images_with_seeds_from_100_and_end_in_a_study(
    tmp_path: Path, ocil: Callable[..., Any]
) -> None:
    found = search(tmp_path / "search-er", runner := Here(), trials=2, seeds=2)
    carry_on(found)
    settings = [job.plan.settings for job in runner.jobs]
    assert [s.seed for s in settings] == [100, 101] * 2
    assert all(s.validate for s in settings)
    own, _ = registry.resolve("er", GIVEN)
    assert (settings[0].lr, settings[0].ema) == (own["lr"], own["ema"])  # the preset's come first
    assert settings[1].lr == settings[0].lr != settings[2].lr
    records = [json.loads((job.folder / "record.json").read_bytes()) for job in runner.jobs]
    values = [r["final_average_accuracy"] for r in records]
    means = [sum(values[:2]) / 2, sum(values[2:]) / 2]
    assert found.best.value == pytest.approx(max(means))
    best = runner.jobs[2 * means.index(max(means))].plan.settings

    found.write_best(tmp_path / "search-er" / "best.toml")
    study = read_study(tmp_path / "search-er" / "best.toml")
    assert study.name == "best-er"
    assert [plan.trials for plan in study.plans] == [2] * 5
    first = study.plans[0]
    assert (first.settings.lr, first.settings.ema) == (best.lr, best.ema)
    assert not first.settings.validate
    RunFolder(tmp_path / "first").create(first)
    assert resume_run(tmp_path / "first")["trials"] == 2
    assert ocil("show", tmp_path / "first").code == 0
    changed = read_study(tmp_path / "search-er" / "best.toml", changes=["lr=0.1"])
    assert changed.plans[0].trials is None  # they were made for another setting
    assert [s.name for s in picture(found).series] == ["to the end"]


def test_a_search_that_was_killed_goes_on_and_counts_every_trial_once(tmp_path: Path) -> None:
    with pytest.raises(ConnectionAbortedError):
        carry_on(search(tmp_path / "a", Here(last=2), trials=4))
    again = search(tmp_path / "a", runner := Here(), trials=4)
    carry_on(again)
    assert len(runner.jobs) == 2  # the third is taken up again, the fourth is new
    assert len(again.made) == 4
    assert all(t.state == again.states.COMPLETE for t in again.made)
    carry_on(search(tmp_path / "a", third := Here(), trials=4))
    assert not third.jobs  # all are made


def test_a_trial_that_falls_behind_is_given_up(tmp_path: Path) -> None:
    carry_on(search(tmp_path / "a", Here(), trials=STARTUP))
    found = search(tmp_path / "a", Here(), trials=STARTUP + 1)
    jobs: list[Job] = []
    found.watch(jobs)
    (job,) = jobs
    job.state, job.worker = "running", (worker := Done())
    folder = RunFolder(job.folder)
    folder.path.mkdir(exist_ok=True)
    row = {"event": "evaluation", "images": "probe", "readout": "head", "task": 0}
    steps = sorted(found.made[0].intermediate_values)
    early = [step for step in steps if step < found.warmup]
    for step in early:
        folder.append(row | {"step": step, "correct": [0], "total": [10]})
    found.watch(jobs)
    assert (job.state, worker.stopped) == ("running", False)  # too early to say
    for step in steps[:-1]:  # again, as after a resume
        folder.append(row | {"step": step, "correct": [10], "total": [10]})
    found.watch(jobs)
    assert (job.state, worker.stopped) == ("running", False)  # better than the others
    for step in steps:
        folder.append(row | {"step": step, "correct": [0], "total": [10]})
    found.watch(jobs)
    assert (job.state, worker.stopped) == ("pruned", True)
    assert [t.state.name for t in found.made] == ["COMPLETE"] * STARTUP + ["PRUNED"]
    assert [s.name for s in picture(found).series] == ["to the end", "given up"]
    assert found.best.number < STARTUP


def test_a_trial_that_fails_counts_and_the_search_goes_on(tmp_path: Path) -> None:
    found = search(tmp_path / "a", Here(), trials=2)
    jobs: list[Job] = []
    found.watch(jobs)
    jobs[0].state = "failed"
    found.watch(jobs)
    run_jobs(jobs, found.runner, found.watch)
    assert [t.state.name for t in found.made] == ["FAIL", "COMPLETE"]
    assert found.best.number == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("er", "--trials", "0"), "--trials is 0 but must be at least 1"),
        (("er", "--set", "seed=1"), "--set seed is decided by the search itself"),
        (("er", "--set", "lrr=1"), "Unknown setting 'lrr' in --set"),
        (("er", "--data", "mnits"), "Did you mean 'mnist'"),
        (("slda",), "has no setting to search here"),
        (("er", "--on", "there"), "--on is 'there' but must be"),
    ],
)
def test_bad_words(
    ocil: Callable[..., Any], tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    found = ocil("tune", *words, "--out", tmp_path / "out")
    assert found.is_sentence(), found
    assert said in found.err
    assert not (tmp_path / "out").exists()


def test_without_optuna_there_is_a_sentence(
    ocil: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    found = ocil("tune", "er", "--out", tmp_path)
    assert found.is_sentence(), found
    assert "`ocil tune` needs optuna; install it with `pip install ocil[tune]`" in found.err


def test_the_command_writes_a_study_and_a_picture(
    ocil: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="the extra `tune` is not installed")
    monkeypatch.setattr("ocil.commands.tune.open_runner", lambda *_: Here())
    words = [w for k, v in GIVEN.items() if k != "data" for w in ("--set", f"{k}={v}")]
    said = ocil("tune", "er", "--trials", 2, "--out", tmp_path / "out", *words)
    assert said.code == 0, said.err
    assert "Searching lr, ema of er on held-out images of digits." in said.out
    assert "Best of 2 trials: " in said.out
    (folder,) = (tmp_path / "out").iterdir()
    assert (folder / "best.toml").exists() and (folder / "trials.png").exists()
    assert not list(folder.rglob("checkpoints"))


@pytest.mark.slow
def test_a_search_on_ray_ends_as_here(
    ray_here: Any, ocil: Callable[..., Any], tmp_path: Path
) -> None:
    pytest.importorskip("optuna", reason="the extra `tune` is not installed")
    words = [w for k, v in GIVEN.items() if k != "data" for w in ("--set", f"{k}={v}")]
    for place in ("ray", "local"):
        on = ("--on", place, "--workers", 2, "--trials", 1, "--out", tmp_path / place)
        found = ocil("tune", "er", *words, *on)
        assert found.code == 0, found.err
        assert "Best of 1 trials" in found.out
    studies = [next((tmp_path / p).rglob("best.toml")).read_text() for p in ("ray", "local")]
    assert studies[0] == studies[1]
