"""Checkpoints are whole or passed over: damage and malice never stop a run from going on."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load as load_tensors

from ocil import files
from ocil.data import load
from ocil.errors import OcilError
from ocil.run import checkpoint
from ocil.run.folder import RunFolder
from ocil.session import State

PROGRESS = {"seconds": 1.5, "threads": 1, "of": {"job": "ab", "data": "cd"}}


def state(step: int) -> State:
    tensors = {"a": torch.full((3, 2), float(step)), "b": torch.tensor(step), "c": torch.zeros(0)}
    return State(tensors, {"method": "er", "labels": [1, "x"], "step": step})


def save(folder: Path, *steps: int) -> None:
    for step in steps:
        checkpoint.save(folder, state(step), dict(PROGRESS))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def of_step(step: int) -> list[str]:
    return [f"step-{step:08d}.json", f"step-{step:08d}.safetensors"]


def test_what_was_saved_is_read(tmp_path: Path) -> None:
    save(tmp_path / "made" / "here", 5)
    found = checkpoint.latest(tmp_path / "made" / "here")
    assert found is not None
    assert (found.step, found.progress) == (5, PROGRESS)
    assert found.state.sha256() == state(5).sha256()


def test_a_folder_without_checkpoints_has_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert checkpoint.latest(tmp_path) is None
    assert checkpoint.latest(tmp_path / "nowhere") is None
    assert not caplog.records


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    save(tmp_path, 9, 99, 100, 101)
    assert names(tmp_path) == sorted(of_step(100) + of_step(101))


def test_what_a_kill_left_and_what_was_passed_over_is_removed(tmp_path: Path) -> None:
    save(tmp_path, 300, 400)
    (tmp_path / ".step-00000120.safetensors.77.tmp").write_bytes(b"half")
    (tmp_path / "step-00000130.safetensors").write_bytes(b"no json beside it")
    save(tmp_path, 10, 20)  # 300 and 400 were damaged: the run began again
    assert names(tmp_path) == sorted(of_step(10) + of_step(20))


def test_files_are_json_and_safetensors_and_nothing_else(tmp_path: Path) -> None:
    save(tmp_path, 7)
    assert set(load_tensors((tmp_path / of_step(7)[1]).read_bytes())) == {"a", "b", "c"}
    note = json.loads((tmp_path / of_step(7)[0]).read_bytes())
    blob = (tmp_path / of_step(7)[1]).read_bytes()
    assert note["sha256"] == hashlib.sha256(blob).hexdigest()


# ------------------------------------------------------------------ damage


def _change(path: Path, edit: Callable[[bytes], bytes]) -> None:
    path.write_bytes(edit(path.read_bytes()))


def _flip(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


DAMAGE: dict[str, Callable[[Path, Path], Any]] = {
    "tensors cut": lambda note, blob: _change(blob, lambda c: c[: len(c) // 2]),
    "tensors altered": lambda note, blob: _change(blob, _flip),
    "tensors empty": lambda note, blob: blob.write_bytes(b""),
    "tensors missing": lambda note, blob: blob.unlink(),
    "tensors a folder": lambda note, blob: (blob.unlink(), blob.mkdir()),
    "note cut": lambda note, blob: _change(note, lambda c: c[: len(c) // 2]),
    "note altered": lambda note, blob: _change(note, lambda c: c.replace(b"1.5", b"2.5")),
    "note empty": lambda note, blob: note.write_bytes(b""),
    "note no text": lambda note, blob: note.write_bytes(b"\xff\x00"),
    "note a folder": lambda note, blob: (note.unlink(), note.mkdir()),
    "note nested": lambda note, blob: note.write_bytes(b"[" * 100_000),
    "note a list": lambda note, blob: note.write_bytes(b"[1, 2]"),
    "note a number": lambda note, blob: note.write_bytes(b"3"),
    "note without a check": lambda note, blob: note.write_bytes(b'{"schema": 1}'),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_with_a_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path, Path], Any]
) -> None:
    save(tmp_path, 10, 20)
    damage(tmp_path / of_step(20)[0], tmp_path / of_step(20)[1])
    with caplog.at_level(logging.WARNING):
        found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.state.sha256() == state(10).sha256()
    (said,) = caplog.messages
    assert "step-00000020" in said
    assert "passed over" in said
    assert "\n" not in said


def test_a_missing_newest_checkpoint_leaves_the_one_before(tmp_path: Path) -> None:
    save(tmp_path, 10, 20)
    for name in of_step(20):
        (tmp_path / name).unlink()
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 10


def test_where_all_are_damaged_there_is_none_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 10, 20)
    for path in tmp_path.glob("*.safetensors"):
        _change(path, _flip)
    assert checkpoint.latest(tmp_path) is None
    assert len(caplog.messages) == 3
    assert "No sound checkpoint is left" in caplog.messages[-1]
    assert "starts at step 0" in caplog.messages[-1]


# ------------------------------------------------------------------ malice: the sums are right


def forge(folder: Path, number: int, /, blob: bytes | None = None, **changes: Any) -> Path:
    """A checkpoint with changed content whose checksums agree."""
    path = folder / of_step(number)[0]
    note = json.loads(path.read_bytes())
    if blob is not None:
        path.with_suffix(".safetensors").write_bytes(blob)
        note["sha256"] = hashlib.sha256(blob).hexdigest()
    note |= changes
    del note["check"]
    note["check"] = hashlib.sha256(files.canonical(note)).hexdigest()
    path.write_text(json.dumps(note))
    return path


HEADER = json.dumps({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
BLOBS = {
    "a header of 2^60 bytes": struct.pack("<Q", 2**60) + b"{}",
    "a tensor of 2^42 bytes": struct.pack("<Q", len(HEADER)) + HEADER,
    "a header that is no JSON": struct.pack("<Q", 4) + b"{{{{",
    "no header": b"abc",
    "a pickle": b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00\x8c\x05hello\x94.",
}
NOTES: dict[str, dict[str, Any]] = {
    "a step of text": {"step": "20"},
    "an infinite step": {"step": float("inf")},
    "another step": {"step": 21},
    "no scalars": {"scalars": None},
    "scalars that are a list": {"scalars": [1]},
    "no progress": {"progress": None},
    "no threads": {"progress": {"seconds": 1.0, "of": {}}},
    "threads of text": {"progress": PROGRESS | {"threads": "1"}},
    "a million threads": {"progress": PROGRESS | {"threads": 1_000_000}},
    "negative threads": {"progress": PROGRESS | {"threads": -1}},
    "half a thread": {"progress": PROGRESS | {"threads": 1.5}},
    "negative seconds": {"progress": PROGRESS | {"seconds": -1}},
    "seconds that are no number": {"progress": PROGRESS | {"seconds": float("nan")}},
    "of no run": {"progress": {"seconds": 1.0, "threads": 1}},
    "a newer schema": {"schema": 3},
    "a schema of text": {"schema": "1"},
    "a checksum that is a number": {"sha256": 5},
}
FORGED: dict[str, dict[str, Any]] = {k: {"blob": v} for k, v in BLOBS.items()} | NOTES


@pytest.mark.parametrize("content", FORGED.values(), ids=FORGED)
def test_a_forged_checkpoint_is_one_sentence_and_passed_over(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    save(tmp_path, 10, 20)
    path = forge(tmp_path, 20, **content)
    with pytest.raises(OcilError) as caught:
        checkpoint.read(path)
    assert "\n" not in str(caught.value)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 10


def test_forging_without_a_change_is_a_sound_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 20)
    assert checkpoint.read(forge(tmp_path, 20)).step == 20


# ------------------------------------------------------------------ full and read-only disks


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_failing_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: int
) -> None:
    save(tmp_path, 10, 20)
    before = names(tmp_path)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, function, fail)
    with pytest.raises(OcilError, match=os.strerror(number)) as caught:
        save(tmp_path, 30)
    assert "what was saved before is intact" in str(caught.value)
    monkeypatch.undo()
    assert names(tmp_path) == before
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 20


def test_a_checkpoint_half_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full after the tensors and before the note."""
    save(tmp_path, 10, 20)
    write = files.write_atomic

    def until_full(path: Path, content: bytes) -> None:
        if path.suffix == ".json":
            raise files.cannot_write(path, OSError(errno.ENOSPC, "No space left on device"))
        write(path, content)

    monkeypatch.setattr(checkpoint, "write_atomic", until_full)
    with pytest.raises(OcilError, match="No space left"):
        save(tmp_path, 30)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 20


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OcilError, match="Cannot write"):
        save(tmp_path / "file" / "checkpoints", 1)


def test_atomic_writing_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write_atomic(path, b"long content")
    files.write_atomic(path, b"short")
    assert path.read_bytes() == b"short"
    assert names(tmp_path) == ["a"]


@pytest.mark.skipif(os.name != "posix", reason="links and modes as on POSIX")
def test_a_link_its_target_and_who_may_read_it_are_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o600)
    link.symlink_to(target)
    files.write_atomic(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o600
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_atomic(pipe, b"into it")
    assert os.read(reader, 99) == b"into it" and pipe.is_fifo()
    os.close(reader)


@pytest.mark.parametrize(
    ("labels", "kind", "fits"),
    [
        ([0, 9], torch.uint8, True),
        ([], None, True),
        ([0, 10], torch.uint8, False),
        ([0, 9], torch.float32, False),
    ],
)
def test_labels_and_items_of_a_checkpoint_are_those_of_the_data(
    tmp_path: Path, labels: list[int], kind: torch.dtype | None, fits: bool
) -> None:
    tensors = {"learner.memory.column.x": torch.zeros(2, 1, 8, 8, dtype=kind)} if kind else {}
    found = checkpoint.Checkpoint(3, State(tensors, {"labels": labels}), {})
    dataset, folder = load("digits"), RunFolder(tmp_path)
    if fits:
        checkpoint._check_fits(found, dataset, folder)
    else:
        with pytest.raises(OcilError, match="not those of the data; delete it"):
            checkpoint._check_fits(found, dataset, folder)
