"""The TensorBoard listener: what its files hold is what the record says."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.commands.run import plan_from_words
from ocil.listeners.tensorboard import FILE, TensorBoard, run_name, scalars, texts

Ocil = Callable[..., Any]


def evaluation(step: int, task: int, correct: list[int], **more: Any) -> dict[str, Any]:
    total = [10 if label < 2 * (task + 1) else 0 for label in range(4)]
    row = {"step": step, "task": task, "correct": correct, "total": total}
    return row | {"readout": "head", "images": "all"} | more


@pytest.fixture
def record() -> dict[str, Any]:
    """Two tasks of two classes: 90 %, then 60 % and 80 %, with one probe on the way."""
    return {
        "schema": 1,
        "method": "er",
        "data": "digits",
        "split": "test",
        "memory": 100,
        "seed": 3,
        "job": "0123456789abcdef",
        "settings": {"lr": 0.01, "augment": "a|b <i>"},
        "command": "ocil run er",
        "readout": "head",
        "readouts": ["head", "mean"],
        "class_names": list("abcd"),
        "tasks": [[0, 1], [2, 3]],
        "evaluations": [
            evaluation(4, 0, [5, 8, 0, 0], images="probe"),
            evaluation(7, 0, [9, 9, 0, 0]),
            evaluation(15, 1, [4, 8, 8, 8]),
            evaluation(15, 1, [9, 9, 9, 9], readout="mean"),
        ],
    }


def test_the_curves_are_those_of_the_metrics(record: dict[str, Any]) -> None:
    found: dict[str, list[tuple[int, float]]] = {}
    for tag, step, value in scalars(record):
        found.setdefault(tag, []).append((step, round(float(value), 6)))
    assert found["accuracy/head"] == [(7, 90.0), (15, 70.0)]
    assert found["forgetting/head"] == [(15, 30.0)]
    assert found["anytime/head"] == [(4, 65.0)]
    assert found["tasks/1"] == [(7, 90.0), (15, 60.0)]
    assert found["tasks/2"] == [(15, 80.0)]
    assert found["final/accuracy"] == [(15, 70.0)]
    assert found["final/forgetting"] == [(15, 30.0)]
    assert "final/worst" not in found  # not defined without probes after the border
    assert "forgetting/mean" not in found


def test_files_read_back_as_they_were_told(record: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    listener = TensorBoard(str(tmp_path / "logs"))
    listener(record)
    listener(record)  # told again: the same file
    folder = tmp_path / "logs" / "er-digits-m100-s3-01234567"
    assert [path.name for path in folder.iterdir()] == [FILE]
    read = EventAccumulator(str(folder))
    read.Reload()
    assert [(e.step, e.value) for e in read.Scalars("accuracy/head")] == [(7, 90.0), (15, 70.0)]
    assert [e.step for e in read.Scalars("accuracy/mean")] == [15]  # nan is left out
    (told,) = read.Tensors("settings")
    assert told.tensor_proto.string_val[0].decode() == texts(record)["settings"]


def test_the_settings_are_text_whatever_they_hold(record: dict[str, Any]) -> None:
    assert r"| augment | a\|b &lt;i&gt; |" in texts(record)["settings"]
    assert "| lr | 0.01 |" in texts(record)["settings"]
    record |= {"method": "../..", "data": "a/b c\n", "memory": None, "job": None}
    assert run_name(record) == ".._..-a_b_c_-m0-s3-"


def test_a_run_is_written_and_its_job_is_the_same(
    ocil: Ocil,
    flags: Callable[..., list[str]],
    small: dict[str, Any],
    tmp_path: Path,
) -> None:
    pytest.importorskip("tensorboard")
    logs = tmp_path / "logs"
    said = ocil(
        "run", "er", *flags(small), "--out", tmp_path / "run", "--listen", f"tensorboard={logs}"
    )
    assert said.code == 0, said.err
    (folder,) = logs.iterdir()
    job = plan_from_words("er", flags(small))[0].job  # without a listener
    assert json.loads((tmp_path / "run" / "record.json").read_text())["job"] == job
    assert folder.name == f"er-digits-m30-s0-{job[:8]}"
    assert (folder / FILE).stat().st_size > 1000


def test_what_is_missing_is_said_before_the_run(
    ocil: Ocil,
    flags: Callable[..., list[str]],
    small: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("run", "er", *flags(small), "--out", tmp_path / "run", "--listen")
    (tmp_path / "file").write_text("")
    said = ocil(*words, f"tensorboard={tmp_path / 'file'}")
    assert said.is_sentence(), said.err
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    said = ocil(*words, f"tensorboard={tmp_path / 'logs'}")
    assert said.is_sentence(), said.err
    assert "install it with `pip install ocil[track]`" in said.err
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "logs").exists()
