"""The record holds what design and reports ask for, and a command that makes it again."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ocil
from ocil.commands.run import flags_of, plan_from_words
from ocil.learners import registry
from ocil.learners.er import ErSettings
from ocil.run import record as records
from ocil.run.command import command
from ocil.run.folder import Plan
from ocil.run.reading import check_record, read_record
from ocil.settings import fields_of, job_id, to_mapping

KEYS = {
    "schema", "method", "preset", "study", "data", "data_fingerprint", "split", "memory", "seed",
    "epochs", "settings", "job", "command", "versions", "commit", "dirty", "readout", "readouts",
    "stream_sha256", "class_names", "tasks", "evaluations", "accuracy_matrix",
    "final_average_accuracy", "average_forgetting", "metrics", "steps",
    "gradient_steps_per_batch", "seconds", "images_per_second", "backbone_images_per_step",
    "bytes_held", "peak_memory_mb", "state_sha256",
}  # fmt: skip


def test_every_key_is_there(run: Callable[..., dict[str, Any]], plan: Callable[..., Any]) -> None:
    record = run(seed=2)
    assert set(record) >= KEYS
    assert set(record["settings"]) == set(fields_of(registry.get("er").settings_type))
    assert record["settings"] == to_mapping(plan(seed=2).settings)
    assert record["job"] == plan(seed=2).job
    assert (record["schema"], record["method"], record["data"]) == (1, "er", "digits")
    assert (record["seed"], record["memory"], record["epochs"]) == (2, 30, 1)
    assert record["split"] == "test"
    assert record["class_names"] == [str(i) for i in range(10)]
    assert {"ocil", "torch", "numpy", "python"} <= set(record["versions"])
    assert record["versions"]["ocil"] == ocil.__version__
    assert set(record["metrics"]) == {
        "learning_accuracy", "backward_transfer", "average_anytime_accuracy", "worst_case_accuracy"
    }  # fmt: skip
    for key in ("data_fingerprint", "job", "stream_sha256", "state_sha256"):
        assert len(bytes.fromhex(record[key])) == 32
    assert record["seconds"] > 0
    assert record["images_per_second"] > 0
    assert record["peak_memory_mb"] > 10
    check_record(record)


def test_no_path_of_this_machine_is_in_a_record(
    run: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    run()
    text = (tmp_path / "run" / "record.json").read_text()
    assert str(tmp_path) not in text
    assert str(Path.home()) not in text


def test_one_evaluation_is_one_line(run: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    record = run()
    lines = (tmp_path / "run" / "record.json").read_text().splitlines()
    assert sum('"readout":' in line and '"correct"' in line for line in lines) == len(
        record["evaluations"]
    )


def test_every_metric_is_under_its_own_name() -> None:
    def row(step: int, task: int, correct: list[int], images: str) -> dict[str, Any]:
        total = [10, 10 if task else 0]
        counts = {"correct": correct, "total": total, "readout": "head"}
        return {"step": step, "task": task, "images": images, **counts}

    rows = [
        row(1, 0, [9, 0], "all"), row(1, 0, [7, 0], "probe"), row(2, 1, [3, 8], "probe"),
        row(3, 1, [4, 7], "probe"), row(3, 1, [5, 6], "all"),
    ]  # fmt: skip
    found = records.results(rows, [[0], [1]], "head")
    assert found["accuracy_matrix"] == [[90.0, None], [50.0, 60.0]]
    assert found["final_average_accuracy"] == 55.0  # (50 + 60) / 2
    assert found["average_forgetting"] == 40.0  # 90 - 50
    assert found["metrics"] == {
        "learning_accuracy": 75.0,  # (90 + 60) / 2
        "backward_transfer": -40.0,  # 50 - 90
        "average_anytime_accuracy": pytest.approx((70 + 55 + 55) / 3),
        "worst_case_accuracy": 50.0,  # (min(30, 40) + 70) / 2
    }
    assert found["evaluations"] == rows


# ------------------------------------------------------------------ the command


def plan_of(method: str, given: dict[str, Any]) -> Any:
    values, preset = registry.resolve(method, given)
    return Plan(method, registry.make_settings(method, values), preset)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("er", {}),
        ("er", {"data": "mnist", "memory": 1500, "seed": 4, "lr": 2e-3, "updates": 2}),
        ("er", {"data": "mnist", "preset": "reference", "validate": True}),
        ("er", {"preset": "reference", "skip_first": False, "ema": 0.9}),
        ("er", {"limit_per_class": 5, "order": "joint", "retrieval": "balanced"}),
        ("er", {"memory": None}),
        ("finetune", {"data": "mnist"}),
        ("finetune", {"width": 50}),
        ("joint", {"data": "fashion-mnist", "memory": 7, "readout": "mean"}),
        ("joint", {"order": "split"}),
    ],
)
def test_the_command_makes_the_same_plan_again(method: str, given: dict[str, Any]) -> None:
    made = plan_of(method, given)
    words = shlex.split(command(method, to_mapping(made.settings)))
    assert words[:3] == ["ocil", "run", method]
    again, places = plan_from_words(method, words[3:])
    assert again == made
    assert places.out is None


def test_the_command_is_short_and_says_the_essentials() -> None:
    def of(settings: Any, method: str = "er") -> str:
        return command(method, to_mapping(settings))

    plain = of(ErSettings())
    assert plain.startswith("ocil run er --data digits --memory 500 --seed 0")
    assert "--batch" not in plain
    chosen = of(ErSettings(data="mnist", seed=3, skip_first=True, batch=7))
    assert chosen.startswith("ocil run er --data mnist --memory 500 --seed 3")
    assert " --batch 7" in chosen
    assert " --skip-first" in chosen
    elsewhere = ErSettings(device="mps", threads=4, checkpoint_every=7)
    assert of(elsewhere) == plain
    floor = of(plan_of("finetune", {}).settings, "finetune")
    assert "--memory" not in floor


# ------------------------------------------------------------------ the source


def test_the_commit_is_that_of_the_source_tree() -> None:
    root = Path(ocil.__file__).parents[2]
    found = records.source_state()
    if not (root / ".git").exists():
        assert found == {"commit": None, "dirty": None}
        return
    call = ["git", "-C", str(root), "rev-parse", "HEAD"]
    head = subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()
    assert found["commit"] == head
    assert isinstance(found["dirty"], bool)


@pytest.mark.parametrize(("status", "dirty"), [("", False), (" M src/ocil/cli.py", True)])
def test_git_tells_the_commit_and_whether_the_code_was_changed(
    monkeypatch: pytest.MonkeyPatch, status: str, dirty: bool
) -> None:
    def answer(call: list[str], **_: Any) -> Any:
        said = "ab12\n" if "rev-parse" in call else f"{status}\n"
        return subprocess.CompletedProcess(call, 0, said)

    monkeypatch.setattr(subprocess, "run", answer)
    assert records.source_state() == {"commit": "ab12", "dirty": dirty}


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert records.source_state() == {"commit": None, "dirty": None}


@pytest.mark.skipif(sys.platform != "linux", reason="how Linux counts")
def test_the_peak_is_the_process_own_and_not_its_parents() -> None:
    """A study that has measured a large net starts its runs as children."""
    child = "from ocil.run.record import peak_memory_mb as p; print(p())"
    parent = (
        "import subprocess, sys; held = b'x' * (1 << 30);"
        f"print(subprocess.run([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE,"
        " check=True).stdout.decode())"
    )
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, check=True)
    assert float(done.stdout) < 900


def shipped() -> list[Path]:
    return sorted((Path(__file__).parents[2] / "results").glob("*/*/record.json"))


def test_the_command_beside_a_shipped_record_gives_its_job() -> None:
    assert len(shipped()) > 100
    for path in shipped():
        record = read_record(path)
        method = record["method"]
        flags, _ = flags_of(method, shlex.split(record["command"])[3:])
        values, _ = registry.resolve(method, *flags)
        job = job_id(registry.info(method), values)
        assert job == job_id(registry.info(method), record["settings"]), path


def test_a_setting_younger_than_the_record_has_its_frozen_default(tmp_path: Path) -> None:
    path = next(p for p in shipped() if '"method": "otc"' in p.read_text())
    record = json.loads(path.read_text())
    for key in ("views", "watched", "mixture_replay"):
        record["settings"].pop(key, None)
    (tmp_path / "record.json").write_text(json.dumps(record))
    settings = read_record(tmp_path)["settings"]
    assert (settings["views"], settings["mixture_replay"]) == (1, "all")


@pytest.mark.parametrize(
    ("kernel", "system", "told"),
    [("Fast CPU", "x86", "Fast CPU"), ("", "x86", "x86"), ("", "", "arm64")],
)
def test_the_processor_is_named_as_well_as_can_be_told(
    monkeypatch: pytest.MonkeyPatch, kernel: str, system: str, told: str
) -> None:
    monkeypatch.setattr(records, "_kernel_says", lambda *_: kernel)
    monkeypatch.setattr(records.platform, "processor", lambda: system)
    monkeypatch.setattr(records.platform, "machine", lambda: "arm64")
    assert records.processor() == told
