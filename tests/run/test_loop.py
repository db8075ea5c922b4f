"""A run from its first batch to its record, in this process, on few digits."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil import data, files
from ocil.errors import OcilError
from ocil.run import checkpoint, metrics
from ocil.run.folder import RunFolder
from ocil.run.loop import resume_run, start_run
from ocil.run.reading import read_record
from ocil.session import Session
from ocil.stream import Stream, probe_indices

Run = Callable[..., dict[str, Any]]
MakePlan = Callable[..., Any]


def test_the_same_seed_gives_the_same_bits_and_another_does_not(run: Run) -> None:
    one, two, other = run("a"), run("b"), run("c", seed=1)
    assert one["state_sha256"] == two["state_sha256"]
    assert one["evaluations"] == two["evaluations"]
    assert one["stream_sha256"] == two["stream_sha256"]
    assert other["state_sha256"] != one["state_sha256"]
    assert other["tasks"] != one["tasks"]


def test_the_global_generators_play_no_part(run: Run) -> None:
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(1)
        one = run("a")
        torch.manual_seed(2)
        before = torch.get_rng_state()
        two = run("b")
        assert torch.equal(torch.get_rng_state(), before)
    assert one["state_sha256"] == two["state_sha256"]


def test_how_it_is_carried_out_does_not_alter_the_result(run: Run) -> None:
    one = run("a", eval_every=4, checkpoint_every=5, probe=40)
    two = run("b", eval_every=0, checkpoint_every=0)
    assert one["state_sha256"] == two["state_sha256"]
    assert one["accuracy_matrix"] == two["accuracy_matrix"]


def test_evaluations_are_made_when_they_are_due(run: Run, plan: MakePlan) -> None:
    record = run()
    ends = [3, 6, 9, 12, 15]
    every = [e for e in record["evaluations"] if e["images"] == "all"]
    probes = [e for e in record["evaluations"] if e["images"] == "probe"]
    assert [e["step"] for e in every] == [s for s in ends for _ in range(4)]
    assert [e["task"] for e in every] == [t for t in range(5) for _ in range(4)]
    assert [e["readout"] for e in every[:4]] == ["head", "mean", "ema-head", "ema-mean"]
    assert [(e["step"], e["task"], e["readout"]) for e in probes] == [
        (4, 1, "ema-head"),
        (8, 2, "ema-head"),
        (12, 3, "ema-head"),
    ]


def test_totals_are_those_of_the_classes_seen(run: Run, plan: MakePlan) -> None:
    record, digits = run(), data.load("digits")
    stream = Stream(digits.train_labels, plan().settings)
    streamed = [set(digits.train_labels[batch.indices].tolist()) for batch in stream.batches()]
    counts = np.bincount(digits.test_labels)
    probe = np.bincount(digits.test_labels[probe_indices(digits.test_labels, 40)])
    for e in record["evaluations"]:
        seen = set().union(*streamed[: e["step"]])
        of = counts if e["images"] == "all" else probe
        assert e["total"] == [int(n) if label in seen else 0 for label, n in enumerate(of)]
    assert {e["images"] for e in record["evaluations"]} == {"all", "probe"}


def test_validation_evaluates_held_out_training_images(run: Run, plan: MakePlan) -> None:
    record, digits = run(validate=True), data.load("digits")
    held = Stream(digits.train_labels, plan(validate=True).settings).held_out
    assert record["split"] == "validation"
    last = [e for e in record["evaluations"] if e["images"] == "all"][-1]
    assert last["total"] == np.bincount(digits.train_labels[held]).tolist()


def test_numbers_are_derived_from_the_evaluations(run: Run) -> None:
    record = run()
    matrix = metrics.accuracy_matrix(record["evaluations"], record["tasks"], record["readout"])
    shown = [[None if np.isnan(a) else a for a in row] for row in matrix.tolist()]
    assert record["accuracy_matrix"] == shown
    assert record["final_average_accuracy"] == np.mean(shown[-1])
    assert record["average_forgetting"] == metrics.average_forgetting(matrix)


def test_a_run_learns(run: Run) -> None:
    record = run(limit_per_class=None, width=64, lr=0.005, memory=100, replay=64)
    assert record["final_average_accuracy"] > 80


def test_finetune_has_no_memory_and_forgets(run: Run, tmp_path: Path) -> None:
    record = run("floor", "finetune", limit_per_class=60, lr=0.01)
    assert record["memory"] is None
    assert record["settings"]["memory"] is None
    assert json.loads((tmp_path / "floor" / "record.json").read_bytes())["memory"] is None
    assert record["readouts"] == ["head", "ema-head"]
    assert record["average_forgetting"] > 20
    assert record["backbone_images_per_step"] == 60 * 10 / record["steps"]


def test_joint_forgets_nothing_by_definition(run: Run) -> None:
    record = run("ceiling", "joint")
    assert record["average_forgetting"] is None
    assert record["metrics"]["backward_transfer"] is None
    assert record["metrics"]["worst_case_accuracy"] is None
    assert all(a is None for row in record["accuracy_matrix"][:-1] for a in row)
    assert all(a is not None for a in record["accuracy_matrix"][-1])
    assert record["steps"] == 12
    assert record["metrics"]["average_anytime_accuracy"] is not None


def test_images_through_the_net_and_bytes_held(run: Run) -> None:
    record = run(updates=2, memory=20, replay=16)
    # batches of 10, 10 and 4; replayed 0, 10, then 16 each time; twice a batch
    assert record["backbone_images_per_step"] == 2 * (120 + 10 + 13 * 16) / 15
    weights = 64 * 16 + 16 + 16 * 16 + 16 + 10 * 16 + 10
    assert record["bytes_held"] == 20 * (64 + 8) + 4 * weights
    assert record["gradient_steps_per_batch"] == 2


# ------------------------------------------------------------------ folder


def test_settings_are_written_before_the_first_step(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ocil.session import Session

    def fail(*_: Any, **__: Any) -> None:
        assert (tmp_path / "run" / "settings.json").exists()
        raise ZeroDivisionError

    monkeypatch.setattr(Session, "learn", fail)
    with pytest.raises(ZeroDivisionError):
        start_run(plan(), tmp_path / "run")
    assert RunFolder(tmp_path / "run").plan() == plan()


@pytest.mark.parametrize(
    "changes",
    [
        {"readout": "maen"},
        {"device": "gpu"},
        {"net": "mpl"},
        {"augment": "afine"},
        {"augment": "full"},
        {"classes_per_task": 11},
        {"data": "digit"},
        {"data": "mnist"},
    ],
)
def test_a_run_that_cannot_start_leaves_no_folder(
    tmp_path: Path, plan: MakePlan, changes: dict[str, Any]
) -> None:
    with pytest.raises(OcilError):
        start_run(plan(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_neither_started_nor_resumed_again(
    run: Run, plan: MakePlan, tmp_path: Path
) -> None:
    run()
    before = (tmp_path / "run" / "record.json").read_bytes()
    with pytest.raises(OcilError, match="already holds a run"):
        start_run(plan(seed=5), tmp_path / "run")
    with pytest.raises(OcilError, match="is finished; look at it with `ocil show"):
        resume_run(tmp_path / "run")
    assert (tmp_path / "run" / "record.json").read_bytes() == before


def test_the_events_tell_the_story(run: Run, tmp_path: Path) -> None:
    record = run()
    events = RunFolder(tmp_path / "run").read_events()
    assert events[0] | {"pid": 0} == {"event": "start", "step": 0, "pid": 0, "steps": 15}
    assert events[-1] == {"event": "end", "step": 15}
    saved = [e["step"] for e in events if e["event"] == "checkpoint"]
    assert saved == [5, 10, 15]
    told = [e for e in events if e["event"] == "evaluation"]
    assert [{k: v for k, v in e.items() if k != "event"} for e in told] == record["evaluations"]


def test_a_broken_listener_does_not_stop_a_run(
    tmp_path: Path, plan: MakePlan, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def broken(event: dict[str, Any]) -> None:
        raise RuntimeError("I am broken")

    with caplog.at_level(logging.WARNING):
        record = start_run(
            plan(), tmp_path / "a", listeners=[broken, lambda e: heard.append(e["event"])]
        )
    assert record["state_sha256"] == run("b")["state_sha256"]
    assert heard[0] == "start"
    assert heard[-1] == "end"
    assert "A listener failed on event 'start'." in caplog.messages


def test_a_listener_cannot_alter_the_record(tmp_path: Path, plan: MakePlan, run: Run) -> None:
    def meddler(event: dict[str, Any]) -> None:
        if "correct" in event:
            event["correct"][:] = [0] * 10
        event.clear()

    record = start_run(plan(), tmp_path / "a", listeners=[meddler])
    assert record["evaluations"] == run("b")["evaluations"]


# ------------------------------------------------------------------ what goes wrong on the way


def test_a_loss_that_is_no_number_is_one_sentence(tmp_path: Path, plan: MakePlan) -> None:
    with pytest.raises(OcilError, match=r"The loss became nan by step \d+; lower --lr"):
        start_run(plan(lr=1e30, optimizer="sgd"), tmp_path / "run")
    assert not (tmp_path / "run" / "record.json").exists()


def test_no_checkpoint_holds_a_loss_that_is_no_number(tmp_path: Path, plan: MakePlan) -> None:
    with pytest.raises(OcilError, match="lower --lr"):
        start_run(plan(lr=1e30, optimizer="sgd", eval_every=0, checkpoint_every=2), tmp_path / "a")
    assert not (tmp_path / "a" / "checkpoints").exists()


@pytest.mark.parametrize("full_after", range(7, 12))
def test_a_disk_that_fills_up_costs_no_result(
    tmp_path: Path, plan: MakePlan, run: Run, monkeypatch: pytest.MonkeyPatch, full_after: int
) -> None:
    """Settings take 2 syncs, a checkpoint 5: it is full within the second, at each of its syncs."""
    sync, calls = os.fsync, []

    def until_full(handle: int) -> None:
        calls.append(handle)
        if len(calls) > full_after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    monkeypatch.setattr(files.os, "fsync", until_full)
    with pytest.raises(OcilError, match=r"No space left on device\. Free some space"):
        start_run(plan(checkpoint_every=4), tmp_path / "a")
    monkeypatch.undo()
    found = checkpoint.latest(tmp_path / "a" / "checkpoints")
    assert found is not None
    assert found.step == (8 if full_after == 11 else 4)  # the last sync is of a whole file's name
    record = resume_run(tmp_path / "a")
    assert record["state_sha256"] == run("b")["state_sha256"]
    resumed = [e for e in RunFolder(tmp_path / "a").read_events() if e["event"] == "resume"]
    assert [e["step"] > 0 for e in resumed] == [True]


def test_the_record_that_was_written_is_sound(run: Run, tmp_path: Path) -> None:
    record = run()
    assert read_record(tmp_path / "run") == record


@pytest.mark.parametrize("method", ["er", "otc", "ocm"])
def test_weights_that_are_no_numbers_end_a_run(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """The step that ruins them has a sound report: it was made before the weights changed."""
    learn = Session.learn

    def ruined(session: Session, *given: Any, **more: Any) -> Any:
        if session.step == 9:
            for group in session.learner.optimizer.param_groups:
                group["lr"] = 1e38
        return learn(session, *given, **more)

    monkeypatch.setattr(Session, "learn", ruined)
    with pytest.raises(
        OcilError, match=r"The size of the weights became .* by step 10; lower --lr"
    ):
        start_run(plan(method, net="mlp", checkpoint_every=5, eval_every=0), tmp_path / "run")
    kept = sorted(p.name for p in (tmp_path / "run" / "checkpoints").glob("*.json"))
    assert kept == ["step-00000005.json"]
    assert not (tmp_path / "run" / "record.json").exists()
