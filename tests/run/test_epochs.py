"""Several passes over each task: what learners are told, and stops in the middle of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ocil.learners import registry
from ocil.learners.er import Er
from ocil.run.loop import resume_run, start_run
from ocil.session import Session

Run = Callable[..., dict[str, Any]]
MakePlan = Callable[..., Any]
RESULT = ("state_sha256", "evaluations", "accuracy_matrix", "backbone_images_per_step", "steps")


class Killed(BaseException):
    """Ends a run without a word, as kill -9 does."""


def test_a_learner_is_told_of_tasks_and_epochs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    learn = Er.learn

    def listen(self: Er, batch: Any) -> Any:
        told.append((batch.task, batch.epoch, batch.epochs, batch.step))
        return learn(self, batch)

    def end(self: Er, task: int, images: torch.Tensor, labels: torch.Tensor) -> None:
        told.append(("end", task, len(images), sorted(set(labels.tolist()))))

    monkeypatch.setattr(Er, "learn", listen)
    monkeypatch.setattr(Er, "needs_tasks", True)
    monkeypatch.setattr(Er, "begin_task", lambda self, task: told.append(("begin", task)))
    monkeypatch.setattr(Er, "end_task", end)
    record = run(epochs=2)
    wanted: list[Any] = []
    for task in range(5):
        wanted.append(("begin", task))
        wanted += [(task, b // 3, 2, 6 * task + b) for b in range(6)]
        wanted.append(("end", task, 24, [2 * task, 2 * task + 1]))  # each image once
    assert told == wanted
    assert (record["epochs"], record["steps"]) == (2, 30)


def test_tasks_are_evaluated_after_their_last_epoch(run: Run) -> None:
    record = run(epochs=3, eval_every=0)
    assert sorted({e["step"] for e in record["evaluations"]}) == [9, 18, 27, 36, 45]


def killed(
    made: Any, out: Path, monkeypatch: pytest.MonkeyPatch, kind: type, name: str, replacement: Any
) -> None:
    """Start (or go on with) a run in which a method is replaced by one that dies."""
    with monkeypatch.context() as patch:
        patch.setattr(kind, name, replacement)
        with pytest.raises(Killed):
            resume_run(out) if out.exists() else start_run(made, out)


FITS: list[dict[str, Any]] = [{"objective": "task-em"}]
FITS += [{"objective": "refit-em", "em.every": 4}]
FITS += [{"refresh": True, "offer_every_epoch": False, "schedule": "steps"}]
KILLED = [("derpp", {}), ("bic", {}), ("bic-ac", {}), *(("otc", fit) for fit in FITS)]


@pytest.mark.parametrize(("method", "more"), KILLED)
@pytest.mark.parametrize("epochs", [1, 2])
def test_kills_within_epochs_do_not_alter_the_result(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch, method: str,
    more: dict[str, Any], epochs: int,
) -> None:  # fmt: skip
    options = {"checkpoint_every": 3, "epochs": epochs, "eval_every": 0} | more
    learn, made = Session.learn, plan(method, **options)
    for at in (4, 7, 8, 11):

        def until(self: Session, *words: Any, at: int = at, **more: Any) -> Any:
            if self.step == at:
                raise Killed
            return learn(self, *words, **more)

        killed(made, tmp_path / "a", monkeypatch, Session, "learn", until)
    record, alone = resume_run(tmp_path / "a"), run("b", method, **options)
    assert all(record[key] == alone[key] for key in RESULT)


@pytest.mark.parametrize("before", [True, False], ids=["begun", "done but not saved"])
def test_the_end_of_a_task_is_redone_after_a_kill(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    kind = registry.get("bic")
    end = kind.end_task

    def dies(self: Any, task: int, *images: Any) -> None:
        if task == 2 and before:
            raise Killed
        end(self, task, *images)
        if task == 2:
            raise Killed

    killed(plan("bic"), tmp_path / "a", monkeypatch, kind, "end_task", dies)
    record, alone = resume_run(tmp_path / "a"), run("b", "bic")
    assert all(record[key] == alone[key] for key in RESULT)
