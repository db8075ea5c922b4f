"""Where a run says no, and when it tells a learner of tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.bic import Bic
from ocil.run import latentfile, loop
from ocil.run import record as records
from ocil.run.display import Display
from ocil.run.loop import resume_run, start_run
from ocil.session import Session

MakePlan = Callable[..., Any]


class Killed(BaseException):
    """As kill -9 between two steps."""


def test_a_learner_is_told_of_each_task_once_also_after_a_kill_within_one(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int]] = []
    learn, begin, end = Session.learn, Bic.begin_task, Bic.end_task

    def learning(self: Session, *given: Any, **more: Any) -> Any:
        if self.step == 7 and ("kill", 7) not in told:
            told.append(("kill", 7))
            raise Killed
        told.append(("learn", self.step))
        return learn(self, *given, **more)

    monkeypatch.setattr(Session, "learn", learning)
    monkeypatch.setattr(Bic, "begin_task", lambda s, t: (told.append(("begin", t)), begin(s, t)))
    monkeypatch.setattr(Bic, "end_task", lambda s, t, *x: (told.append(("end", t)), end(s, t, *x)))
    with pytest.raises(Killed):
        start_run(plan("bic", checkpoint_every=1), tmp_path / "a")
    resume_run(tmp_path / "a")
    whole = []
    for task in range(5):
        steps = [("learn", 3 * task + i) for i in range(3)]
        whole += [("begin", task), *steps, ("end", task)]
    assert [event for event in told if event[0] != "kill"] == whole


def test_a_folder_that_is_taken_is_said_before_the_data_are_looked_for(
    tmp_path: Path, plan: MakePlan
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "settings.json").write_text("{}")
    with pytest.raises(OcilError, match="already holds a run"):
        start_run(plan(data="mnist"), tmp_path / "a", data_dir=tmp_path)


@pytest.mark.parametrize(("size", "said"), [(7, "cut off"), (8, "is no whole file")])
def test_a_file_of_latents_has_eight_bytes_at_least(tmp_path: Path, size: int, said: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\0" * size)
    with pytest.raises(OcilError, match=said):
        latentfile.read(path)


def test_a_file_of_latents_has_64_megabytes_at_most(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for size, said in (
        (64 << 20, "is no whole file"),
        ((64 << 20) + 1, "at most 67108864 are read"),
    ):
        with path.open("wb") as stream:
            stream.truncate(size)  # zeros that take no room
        with pytest.raises(OcilError, match=said):
            latentfile.read(path)


@pytest.mark.parametrize("largest", [1.0, 65504.0, 70000.0])
def test_features_take_16_bits_only_where_none_is_lost(tmp_path: Path, largest: float) -> None:
    note = {"method": "er", "data": "a", "job": "ab" * 32, "readout": "head"}
    made = latentfile.Latents(
        note | {"class_names": ["a"]}, np.full((2, 3), largest, np.float32),
        np.zeros(2, np.int32), np.zeros((1, 3), np.float32), np.zeros(1, np.int32),
        np.ones(1, np.float32), None,
    )  # fmt: skip
    (tmp_path / "a").write_bytes(latentfile.dump(made))
    assert (latentfile.read(tmp_path / "a").features == largest).all()


def test_the_live_line_knows_how_many_steps_there_are() -> None:
    with Display("a run", steps=40, n_tasks=5, done=8) as display:
        (line,) = display.tasks
        assert (line.total, line.completed) == (40, 8)


def test_the_end_of_a_task_takes_time_as_a_step_does(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks, end = itertools.count(), Bic.end_task
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(Bic, "end_task", lambda *given: (next(ticks), end(*given)))
    record = start_run(plan("bic"), tmp_path / "a")
    assert record["seconds"] == 15 + 5  # one second each


def test_a_learner_is_told_which_of_how_many_epochs_it_is_in() -> None:
    session = Session("er", registry.get("er").settings_type(epochs=3, width=4), (1, 4, 4))
    told: list[tuple[int, int, int, int | None]] = []
    session.learner.learn = lambda b: told.append((b.step, b.epoch, b.epochs, b.task)) or {}  # type: ignore
    for epoch in range(2):
        session.learn(np.zeros((2, 1, 4, 4), np.uint8), [0, 1], epoch=epoch, task=4)
    assert told == [(0, 0, 3, 4), (1, 1, 3, 4)]


@pytest.mark.parametrize(("platform", "megabytes"), [("linux", 3072.0), ("darwin", 3.0)])
def test_the_peak_memory_where_the_kernel_keeps_no_count_for_a_program(
    monkeypatch: pytest.MonkeyPatch, platform: str, megabytes: float
) -> None:
    def missing(*given: Any, **more: Any) -> str:
        raise OSError

    resource = pytest.importorskip("resource")
    usage = SimpleNamespace(ru_maxrss=3 * 2**20)  # in kilobytes, on a Mac in bytes
    monkeypatch.setattr(records.Path, "read_text", missing)
    monkeypatch.setattr(records.sys, "platform", platform)
    monkeypatch.setattr(resource, "getrusage", lambda who: usage)
    assert records.peak_memory_mb() == megabytes
