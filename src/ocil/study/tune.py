"""Search the settings that a method declares (`search` beside its fields) on held-out images.

A trial is one choice of settings, run with seeds from 100 up. Optuna proposes the next one and
keeps all in a journal of JSON lines; the runs are jobs like those of a study. A trial whose anytime
accuracy so far is below the median of the finished ones' at the same step is given up (the median
rule of Golovin et al. 2017; Optuna's own compares the best value so far, which here is that of the
first task for ever). A search that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ocil.errors import OcilError
from ocil.files import canonical, write_atomic
from ocil.learners import registry
from ocil.run.folder import Plan, RunFolder
from ocil.run.metrics import anytime_curve
from ocil.run.reading import read_record
from ocil.settings import Field, without_effect
from ocil.study.estimate import batches
from ocil.study.jobs import Job, Runner, needed

FIRST_SEED = 100  # seeds below are for reported results
STARTUP = 5  # trials that are never given up: there is little to compare with
JOURNAL = "trials.jsonl"

Values = dict[str, Any]


def search_space(method: str, given: Mapping[str, Any]) -> dict[str, Field]:
    """The settings that are searched: declared, with an effect, and not given."""
    fields = registry.info(method).fields
    values, _ = registry.resolve(method, given)
    idle = {*without_effect(fields, values), *given}
    found = {name: f for name, f in fields.items() if f.search and name not in idle}
    if not found:
        raise OcilError(
            f"Method {method} has no setting to search here: none declares a range, or all that do "
            "are given or have no effect."
        )
    return found


def is_range(field: Field) -> bool:
    """Whether two numbers are the ends of a range.

    >>> lr = Field(("float",), (), 0.1, 0.1, search=(0.01, 1.0))
    >>> is_range(lr), is_range(lr._replace(search=(0.01, 0.1, 1.0)))
    (True, False)
    """
    numbers = all(type(value) in (int, float) for value in field.search)
    return numbers and len(field.search) == 2


@dataclass
class Trial:
    """A choice of settings that is being tried."""

    handle: Any  # Optuna's
    jobs: list[Job]
    seen: int = 0  # steps whose accuracy was told
    sizes: list[int] = field(default_factory=list)  # of the event files when they were last read


class Search:
    """The trials of one search; `watch` is to be called while their jobs run."""

    def __init__(
        self, method: str, given: Values, trials: int, seeds: int, folder: Path, runner: Runner
    ) -> None:
        optuna: Any = needed("optuna", "`ocil tune`", "tune")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.states, self.runner = optuna.trial.TrialState, runner
        self.method, self.trials, self.folder = method, trials, folder
        self.given = given | {"validate": True}
        self.seeds = list(range(FIRST_SEED, FIRST_SEED + seeds))
        self.space = search_space(method, self.given)
        values, _ = registry.resolve(method, self.given)
        backend = optuna.storages.journal.JournalFileBackend(str(folder / JOURNAL))
        question = [method, seeds, values, {k: list(f.search) for k, f in self.space.items()}]
        self.study = optuna.create_study(
            direction="maximize",
            storage=optuna.storages.JournalStorage(backend),
            study_name=hashlib.sha256(canonical(question)).hexdigest()[:16],
            load_if_exists=True,
        )
        # A search that goes on must not draw what it has drawn before.
        seed = FIRST_SEED + len(self.study.trials)
        self.study.sampler = optuna.samplers.TPESampler(seed=seed)
        self.warmup = (batches(values) or 0) // 4  # steps before which nothing is given up
        self.open: list[Trial] = []
        self._take_up(values)

    def _take_up(self, values: Values) -> None:
        """Begin with the preset's own settings, or with what a killed search left open."""
        if not self.study.trials:
            fitting = {k: values[k] for k, f in self.space.items() if _within(f, values[k])}
            self.study.enqueue_trial(fitting)
        for left in self.study.trials:
            if left.state == self.states.RUNNING:
                self.study.tell(left.number, state=self.states.FAIL)
                first = left.user_attrs.get("again", left.number)
                self.study.enqueue_trial(left.params, {"again": first})

    @property
    def made(self) -> list[Any]:
        """Trials that have ended or are running; one that was taken up again counts once."""
        found = {t.user_attrs.get("again", t.number): t for t in self.study.trials
                 if t.state != self.states.WAITING}  # fmt: skip
        return list(found.values())

    @property
    def best(self) -> Any:
        """The trial of the highest accuracy; None before one has ended."""
        whole = [t for t in self.made if t.state == self.states.COMPLETE]
        return max(whole, key=lambda t: t.value, default=None)

    def watch(self, jobs: list[Job]) -> None:
        """Tell Optuna what the open trials came to, and add jobs while there is room."""
        for trial in list(self.open):
            if self._look(trial):
                self.open.remove(trial)
        left = self.trials - len(self.made)
        while left > 0 and self.runner.room([j for t in self.open for j in t.jobs]) > 0:
            trial = self._ask()
            self.open.append(trial)
            jobs += trial.jobs
            left -= 1

    def _ask(self) -> Trial:
        handle = self.study.ask()
        chosen = {name: _suggest(handle, name, f) for name, f in self.space.items()}
        jobs = []
        for seed in self.seeds:
            values, preset = registry.resolve(self.method, self.given | chosen | {"seed": seed})
            settings = registry.make_settings(self.method, values)
            plan = Plan(self.method, settings, preset, self.folder.name)
            jobs.append(Job(plan, self.folder / plan.job[:16]))
        return Trial(handle, jobs, sizes=[0] * len(jobs))

    def _look(self, trial: Trial) -> bool:
        """Whether a trial has ended; one that falls behind is given up."""
        if any(job.state == "failed" for job in trial.jobs):
            self._give_up(trial)
            self.study.tell(trial.handle, state=self.states.FAIL)
        elif all(job.state == "finished" for job in trial.jobs):
            self._falls_behind(trial)  # tells what later trials are compared with
            found = [read_record(job.folder)["final_average_accuracy"] for job in trial.jobs]
            self.study.tell(trial.handle, fmean(found))
        elif self._falls_behind(trial):
            self._give_up(trial)
            self.study.tell(trial.handle, state=self.states.PRUNED)
        else:
            return False
        return True

    def _falls_behind(self, trial: Trial) -> bool:
        """Tell the anytime accuracy so far, averaged over the seeds, at steps all have reached."""
        files = [RunFolder(job.folder).events for job in trial.jobs]
        sizes = [file.stat().st_size if file.exists() else 0 for file in files]
        if sizes == trial.sizes:
            return False
        trial.sizes = sizes
        curves = [_so_far(RunFolder(job.folder).read_events()) for job in trial.jobs]
        for step in sorted(set.intersection(*map(set, curves))):
            if step > trial.seen:
                trial.seen = step
                value = fmean(curve[step] for curve in curves)
                trial.handle.report(value, step)
                if step >= self.warmup and self._below_median(value, step):
                    return True
        return False

    def _below_median(self, value: float, step: int) -> bool:
        whole = [t.intermediate_values for t in self.made if t.state == self.states.COMPLETE]
        others = [told[step] for told in whole if step in told]
        return len(others) >= STARTUP and value < median(others)

    def _give_up(self, trial: Trial) -> None:
        for job in trial.jobs:
            if job.state in ("waiting", "running"):
                job.state = "pruned"
                if job.worker:
                    job.worker.stop()

    def write_best(self, path: Path) -> None:
        """The study file of the best setting: seeds 0 to 4 on the test images."""
        best = self.best
        given = {k: v for k, v in self.given.items() if k != "validate" and v is not None}
        lines = [
            f"# The best of {len(self.made)} trials of `ocil tune`: {best.value:.2f} % on held-out",
            f"# images, seeds {self.seeds[0]} to {self.seeds[-1]}.",
            f"name = {json.dumps(path.parent.name.replace('search', 'best', 1))}",
            f"trials = {len(self.made)}",
            "[[grid]]",
            f"method = {json.dumps(self.method)}",
            *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in (given | best.params).items()),
            "seed = [0, 1, 2, 3, 4]",
        ]
        write_atomic(path, ("\n".join(lines) + "\n").encode())


def _so_far(events: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Step -> mean of the accuracies on the probe up to it; what was done twice counts once."""
    rows = {e["step"]: e for e in events if e.get("images") == "probe"}
    found: dict[int, float] = {}
    points = [p for row in rows.values() for p in anytime_curve([row], row["readout"])]
    for count, (step, _) in enumerate(sorted(points), start=1):
        found[step] = fmean(accuracy for _, accuracy in sorted(points)[:count])
    return found


def _suggest(handle: Any, name: str, field: Field) -> Any:
    """A range above 0 is searched by ratios, one from 0 evenly."""
    if not is_range(field):
        return handle.suggest_categorical(name, list(field.search))
    low, high = field.search
    ask = handle.suggest_float if "float" in field.types else handle.suggest_int
    return ask(name, low, high, log=low > 0)


def _within(field: Field, value: Any) -> bool:
    if is_range(field):
        return type(value) in (int, float) and field.search[0] <= value <= field.search[1]
    return value in field.search
