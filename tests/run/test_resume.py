"""A run that was stopped ends like one left alone, whatever happened to its folder."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.commands.run import plan_from_words
from ocil.errors import OcilError, Stopped
from ocil.files import canonical
from ocil.run import loop
from ocil.run.folder import RunFolder
from ocil.run.loop import resume_run, start_run
from ocil.session import Session

Run = Callable[..., dict[str, Any]]
MakePlan = Callable[..., Any]

# What a stop must not change; times and the machine's load may.
RESULT = (
    "state_sha256", "evaluations", "accuracy_matrix", "metrics", "final_average_accuracy",
    "average_forgetting", "stream_sha256", "tasks", "job", "command", "readouts", "settings",
    "bytes_held", "backbone_images_per_step", "steps", "threads",
)  # fmt: skip


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[key] == other[key] for key in RESULT)


class Killed(BaseException):
    """Ends a run between two steps without a word, as kill -9 does."""


def killed(plan: Any, out: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start (or go on with) a run and let it die when it is about to learn step `at`."""
    learn = Session.learn

    def until(self: Session, *words: Any, **more: Any) -> Any:
        if self.step == at:
            raise Killed
        return learn(self, *words, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "learn", until)
        with pytest.raises(Killed):
            resume_run(out) if out.exists() else start_run(plan, out)


def signalled(number: int, at: int) -> Callable[[dict[str, Any]], None]:
    """A listener that sends this process a signal at the first event of a step."""
    sent: list[int] = []

    def listen(event: dict[str, Any]) -> None:
        if event["step"] >= at and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)

    return listen


def resumed_at(out: Path) -> list[int]:
    return [e["step"] for e in RunFolder(out).read_events() if e["event"] == "resume"]


# ------------------------------------------------------------------ stops


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_step_and_resuming_ends_like_the_run_left_alone(
    tmp_path: Path, plan: MakePlan, run: Run, number: signal.Signals
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Stopped, match="go on with `ocil resume") as caught:
        start_run(plan(), tmp_path / "a", listeners=[signalled(number, at=8)])
    assert caught.value.number == number
    assert signal.getsignal(number) is before
    assert not (tmp_path / "a" / "record.json").exists()
    record = resume_run(tmp_path / "a")
    assert resumed_at(tmp_path / "a") == [8]
    assert same(record, run("b"))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"updates": 2, "retrieval": "balanced", "epochs": 2},
        {"method": "joint", "optimizer": "sgd"},
        {"method": "finetune", "ema": 0.0},
        {"skip_first": True, "validate": True},
        {"net": "resnet18-global", "width": 2, "augment": "none", "limit_per_class": 6},
    ],
    ids=["er", "er, two steps, two epochs", "joint", "finetune", "skip first", "batch norm"],
)
def test_kills_at_any_step_do_not_alter_the_result(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch, changes: dict
) -> None:
    method = changes.pop("method", "er")
    made = plan(method, checkpoint_every=2, **changes)
    for at in (0, 1, 2, 5, 6, 9):
        killed(made, tmp_path / "a", at, monkeypatch)
    record = resume_run(tmp_path / "a")
    assert resumed_at(tmp_path / "a") == [2, 4, 6, 8]  # before a checkpoint it starts again
    assert same(record, run("b", method, checkpoint_every=2, **changes))


def test_without_a_checkpoint_a_run_starts_at_0(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(plan(checkpoint_every=0), tmp_path / "a", 9, monkeypatch)
    assert not (tmp_path / "a" / "checkpoints").exists()
    record = resume_run(tmp_path / "a")
    starts = [e for e in RunFolder(tmp_path / "a").read_events() if e["event"] == "start"]
    assert [e["step"] for e in starts] == [0, 0]
    assert same(record, run("b", checkpoint_every=0))


def test_a_kill_after_the_last_step_only_costs_the_record(tmp_path: Path, run: Run) -> None:
    record = run("a")
    (tmp_path / "a" / "record.json").unlink()
    assert same(resume_run(tmp_path / "a"), record)
    assert resumed_at(tmp_path / "a") == [15]


def test_seconds_add_up(tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(loop.time, "perf_counter", lambda: float(next(ticks)))  # a step is 1 s
    killed(plan(), tmp_path / "a", 7, monkeypatch)  # after the checkpoint at step 5
    record = resume_run(tmp_path / "a")
    assert record["seconds"] == 15
    assert record["images_per_second"] == 120 / 15


def test_what_the_learner_told_of_itself_survives_a_kill(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(plan("otc", checkpoint_every=5), tmp_path / "a", 12, monkeypatch)
    record, whole = resume_run(tmp_path / "a"), run("b", "otc", checkpoint_every=5)
    assert resumed_at(tmp_path / "a") == [10]
    assert [row["step"] for row in whole["inside"]] == [3, 6, 9, 12, 15]
    assert record["inside"] == whole["inside"]
    assert same(record, whole)


def test_threads_are_those_the_run_began_with(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    killed(plan(threads="auto"), tmp_path / "a", 7, monkeypatch)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert resume_run(tmp_path / "a")["threads"] == 1


# ------------------------------------------------------------------ damaged folders


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize("suffix", ["json", "safetensors"])
def test_a_damaged_newest_checkpoint_is_passed_over(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, suffix: str,
) -> None:  # fmt: skip
    killed(plan(), tmp_path / "a", 12, monkeypatch)
    cut(tmp_path / "a" / "checkpoints" / f"step-00000010.{suffix}")
    with caplog.at_level(logging.WARNING):
        record = resume_run(tmp_path / "a")
    assert resumed_at(tmp_path / "a") == [5]
    assert "step-00000010" in caplog.text
    assert same(record, run("b"))


def test_with_all_checkpoints_damaged_a_run_starts_at_0_and_can_be_resumed_again(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    killed(plan(), tmp_path / "a", 12, monkeypatch)
    for path in (tmp_path / "a" / "checkpoints").glob("*.safetensors"):
        cut(path)
    with caplog.at_level(logging.WARNING):
        killed(None, tmp_path / "a", 7, monkeypatch)
    assert "No sound checkpoint is left" in caplog.text
    record = resume_run(tmp_path / "a")
    assert resumed_at(tmp_path / "a") == [5]  # the damaged ones at 10 did not crowd it out
    assert same(record, run("b"))


def test_a_torn_line_in_the_events(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(plan(), tmp_path / "a", 7, monkeypatch)
    events = tmp_path / "a" / "events.jsonl"
    whole = events.read_bytes()
    events.write_bytes(whole[:-9])  # a kill while an evaluation after the checkpoint was written
    assert not whole[:-9].endswith(b"\n")
    record = resume_run(tmp_path / "a")
    assert same(record, run("b"))


HOSTILE_EVENTS = [
    "{}",
    '{"event": "evaluation"}',
    '{"event": "evaluation", "step": "3"}',
    '{"event": "evaluation", "step": 3, "images": "all", "readout": "head"}',
    '{"event": ["evaluation"], "step": 3}',
    '{"event": "evaluation", "step": 3, "task": 0, "images": "all", "readout": "rm -rf",'
    ' "correct": [1], "total": [1]}',
    "[" * 5000,
]


def test_hostile_events_are_left_out(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(plan(), tmp_path / "a", 7, monkeypatch)
    with open(tmp_path / "a" / "events.jsonl", "a") as file:
        file.write("\n".join(HOSTILE_EVENTS) + "\n")
    assert same(resume_run(tmp_path / "a"), run("b"))


def test_lost_evaluations_are_said(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(plan(), tmp_path / "a", 12, monkeypatch)
    (tmp_path / "a" / "events.jsonl").unlink()
    with pytest.raises(OcilError, match=r"lacks \d+ evaluations made before step 10; delete"):
        resume_run(tmp_path / "a")
    for path in (tmp_path / "a" / "checkpoints").iterdir():
        path.unlink()
    assert same(resume_run(tmp_path / "a"), run("b"))


def test_checkpoints_of_another_run_are_refused(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(plan(seed=1), tmp_path / "one", 12, monkeypatch)
    killed(plan(seed=2), tmp_path / "other", 3, monkeypatch)
    (tmp_path / "one" / "checkpoints").rename(tmp_path / "other" / "checkpoints")
    with pytest.raises(OcilError, match="made with other settings or other data"):
        resume_run(tmp_path / "other")


def test_other_images_under_the_same_name_are_refused(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    from ocil import data

    killed(plan(), tmp_path / "a", 7, monkeypatch)
    digits = data.load("digits")
    changed = dataclasses.replace(digits, train_images=255 - digits.train_images)
    monkeypatch.setattr(data, "load", lambda *_: changed)
    with pytest.raises(OcilError, match="made with other settings or other data"):
        resume_run(tmp_path / "a")


def test_a_run_that_another_process_works_on_is_refused(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(plan(), tmp_path / "a", 7, monkeypatch)
    with (
        RunFolder(tmp_path / "a").locked(),
        pytest.raises(OcilError, match="Another process is working on"),
    ):
        resume_run(tmp_path / "a")
    assert resume_run(tmp_path / "a")["steps"] == 15


# ------------------------------------------------------------------ real processes


def wait_for_event(process: subprocess.Popen[str], out: Path, wanted: str, after: int) -> None:
    """Until the run has told an event of this kind beyond a step."""
    while process.poll() is None:
        if any(e["event"] == wanted and e["step"] > after for e in RunFolder(out).read_events()):
            return
        time.sleep(0.01)
    raise AssertionError(f"the run ended too soon: {process.communicate()}")


def test_real_signals_and_a_second_process(
    tmp_path: Path, small: dict[str, Any], start_ocil: Callable[..., Any],
    flags: Callable[..., list[str]],
) -> None:  # fmt: skip
    """Long enough to be hit on a fast machine: 300 steps, and a signal once one is seen at work."""
    long = {"epochs": 3, "limit_per_class": 100, "eval_every": 0, "checkpoint_every": 10}
    out, words = tmp_path / "a", flags(small | long)
    process = start_ocil(["run", "er", *words, "--out", out])
    wait_for_event(process, out, "checkpoint", 0)
    with pytest.raises(OcilError, match="Another process is working on"):
        resume_run(out)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert said.strip() == f"ocil: Stopped; go on with `ocil resume {out}`."
    stopped = json.loads((out / "events.jsonl").read_text().splitlines()[-1])
    assert stopped["event"] == "checkpoint"

    process = start_ocil(["resume", out])
    wait_for_event(process, out, "checkpoint", stopped["step"])
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT

    record = resume_run(out)
    assert resumed_at(out)[0] == stopped["step"]
    assert len(resumed_at(out)) == 2
    alone = start_run(plan_from_words("er", [*words, "--checkpoint-every", "0"])[0], tmp_path / "b")
    assert all(record[key] == alone[key] for key in RESULT if key != "settings")


def test_a_run_begun_before_a_setting_existed_goes_on(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"checkpoint_every": 2}
    whole, out = run(tmp_path / "whole", **changes), tmp_path / "out"
    killed(plan(**changes), out, 5, monkeypatch)
    content = json.loads((out / "settings.json").read_bytes())
    del content["settings"]["momentum"]
    (out / "settings.json").write_text(json.dumps(content))
    assert same(resume_run(out), whole)
    assert resumed_at(out)[-1] > 0


def test_a_run_begun_when_job_ids_were_counted_otherwise_goes_on(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = run(tmp_path / "whole", checkpoint_every=2), tmp_path / "out"
    killed(plan(checkpoint_every=2), out, 5, monkeypatch)
    for path in (out / "checkpoints").glob("*.json"):
        note = json.loads(path.read_bytes())
        del note["check"]
        note["schema"], note["progress"]["of"]["job"] = 1, "ab" * 32
        note["check"] = hashlib.sha256(canonical(note)).hexdigest()
        path.write_text(json.dumps(note))
    assert same(resume_run(out), whole)
    assert resumed_at(out)[-1] > 0


def test_an_evaluation_that_was_altered_is_noticed(
    tmp_path: Path, run: Callable[..., dict[str, Any]]
) -> None:
    """The record is made of the events: a flipped digit would change a result unnoticed."""
    run()
    (tmp_path / "run" / "record.json").unlink()
    events = tmp_path / "run" / "events.jsonl"
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    row = next(line for line in lines if line["event"] == "evaluation" and sum(line["total"]))
    label = next(i for i, n in enumerate(row["total"]) if n)
    row["correct"][label] = (row["correct"][label] + 1) % (row["total"][label] + 1)
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(OcilError, match=r"events.jsonl was altered before step"):
        resume_run(tmp_path / "run")
