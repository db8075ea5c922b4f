"""A run folder: claimed once, read back with suspicion, events that survive a kill."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.errors import OcilError
from ocil.run import folder as folder_module
from ocil.run.folder import Plan, RunFolder

MakePlan = Callable[..., Plan]


def test_a_plan_is_read_back(tmp_path: Path, plan: MakePlan) -> None:
    made = Plan("er", plan(seed=3).settings, "default/digits", "a-study")
    RunFolder(tmp_path / "a" / "b").create(made)
    assert RunFolder(tmp_path / "a" / "b").plan() == made


@pytest.mark.parametrize("name", ["settings.json", "record.json", "events.jsonl", "checkpoints"])
def test_a_folder_with_parts_of_a_run_is_refused(tmp_path: Path, plan: MakePlan, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(OcilError, match=r"already holds a run\. Continue it with `ocil resume"):
        RunFolder(tmp_path).create(plan())


def test_other_files_do_not_matter(tmp_path: Path, plan: MakePlan) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder(tmp_path).create(plan())
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_second_worker_is_refused(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path).locked(),
        pytest.raises(OcilError, match="Another process is working on"),
        RunFolder(tmp_path).locked(),
    ):
        raise AssertionError("the lock was given twice")
    with RunFolder(tmp_path).locked():
        pass


def test_an_error_inside_keeps_its_name_and_frees_the_lock(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), RunFolder(tmp_path).locked():
        raise BrokenPipeError
    with RunFolder(tmp_path).locked():
        pass


# ------------------------------------------------------------------ hostile settings.json


def content(plan: Plan) -> dict[str, Any]:
    settings = {"seed": 1, "memory": 5}
    return {"schema": 1, "method": "er", "preset": "default", "study": None, "settings": settings}


HOSTILE: dict[str, Any] = {
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "cut": b'{"schema": 1, "method": "er"',
    "nested": b"[" * 100_000,
    "a list": [1],
    "null": None,
    "a newer schema": {"schema": 2},
    "a schema of text": {"schema": "x"},
    "an unknown method": {"method": "eer"},
    "a method that is a path": {"method": "../er"},
    "a method that is a module": {"method": "learner"},
    "a method that is a list": {"method": ["er"]},
    "a method that is a number": {"method": 5},
    "no settings": {"settings": None},
    "settings that are a list": {"settings": [1]},
    "an unknown setting": {"settings": {"memroy": 1}},
    "a wrong type": {"settings": {"seed": "1"}},
    "a value out of range": {"settings": {"memory": -1}},
    "a preset that is a number": {"preset": 5},
    "a study that is a list": {"study": []},
}


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
def test_hostile_settings_are_one_sentence(tmp_path: Path, plan: MakePlan, changes: Any) -> None:
    base = content(plan())
    if isinstance(changes, bytes):
        (tmp_path / "settings.json").write_bytes(changes)
    else:
        whole = base | changes if isinstance(changes, dict) else changes
        (tmp_path / "settings.json").write_text(json.dumps(whole))
    with pytest.raises(OcilError) as caught:
        RunFolder(tmp_path).plan()
    assert "\n" not in str(caught.value)


def test_settings_of_an_older_version_take_todays_defaults(tmp_path: Path, plan: MakePlan) -> None:
    (tmp_path / "settings.json").write_text(json.dumps(content(plan())))
    found = RunFolder(tmp_path).plan()
    assert (found.settings.seed, found.settings.memory, found.settings.batch) == (1, 5, 10)


def test_a_missing_key_and_a_missing_file_are_said(tmp_path: Path, plan: MakePlan) -> None:
    with pytest.raises(OcilError, match=r"holds no run: settings.json is missing. Start one"):
        RunFolder(tmp_path).plan()
    for key in content(plan()):
        whole = {k: v for k, v in content(plan()).items() if k != key}
        (tmp_path / "settings.json").write_text(json.dumps(whole))
        with pytest.raises(OcilError, match=f"settings.json cannot be read .*{key}"):
            RunFolder(tmp_path).plan()


# ------------------------------------------------------------------ events


def test_events_are_read_in_order(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert run.read_events() == []
    for step in range(3):
        run.append({"event": "x", "step": step})
    assert [e["step"] for e in run.read_events()] == [0, 1, 2]


@pytest.mark.parametrize("torn", [b'{"event": "ev', b"", b'{"event"\xff', b"[1", b"\x00"])
def test_a_torn_last_line_is_left_out_and_closed(tmp_path: Path, torn: bytes) -> None:
    run = RunFolder(tmp_path)
    run.append({"step": 0})
    with open(run.events, "ab") as file:
        file.write(torn)
    run.append({"step": 1})
    assert run.read_events() == [{"step": 0}, {"step": 1}]


def test_lines_that_are_no_objects_are_left_out(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.events.write_text('3\n[1]\nnull\n"text"\n{"step": 4}\n')
    assert run.read_events() == [{"step": 4}]


def test_a_line_that_fits_in_part_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last bytes of a disk: the system writes some of them and reports no error."""
    write, run = os.write, RunFolder(tmp_path)
    monkeypatch.setattr(folder_module.os, "write", lambda handle, line: write(handle, line[:4]))
    with pytest.raises(OcilError, match="No space left on device"):
        run.append({"event": "evaluation"})
    monkeypatch.undo()
    run.append({"event": "later"})
    assert run.read_events() == [{"event": "later"}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_said(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.events.symlink_to("/dev/full")
    with pytest.raises(OcilError, match=r"No space left on device\. Free some space"):
        run.append({"event": "evaluation"})


PARTS = ("settings.json", "record.json", "data.json", "events.jsonl", "latents.safetensors")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("name", [*PARTS, "checkpoints/step-00000001.json"])
def test_a_pipe_in_a_run_folder_is_not_waited_for(
    tmp_path: Path, plan: MakePlan, name: str, within_seconds: None
) -> None:
    from ocil.run import checkpoint, latentfile
    from ocil.run.reading import read_record

    folder = RunFolder(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    readers: dict[str, Callable[[], Any]] = {
        "settings.json": folder.plan,
        "record.json": lambda: read_record(tmp_path),
        "data.json": folder.own_data,
        "events.jsonl": folder.read_events,
        "latents.safetensors": lambda: latentfile.read(tmp_path / name),
    }
    with pytest.raises(OcilError, match="no regular file"):
        readers.get(name, lambda: checkpoint.read(tmp_path / name))()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_events_are_not_written_into_a_pipe(tmp_path: Path, within_seconds: None) -> None:
    os.mkfifo(tmp_path / "events.jsonl")
    with pytest.raises(OcilError, match="no regular file"):
        RunFolder(tmp_path).append({"event": "start"})
