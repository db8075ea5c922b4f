"""Bad input through the real command line: exit code 2, one sentence with the remedy."""

from __future__ import annotations

import errno
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil import files

Ocil = Callable[..., Any]


@pytest.fixture
def runner(
    ocil: Ocil, small: dict[str, Any], flags: Callable[..., list[str]], tmp_path: Path
) -> Ocil:
    """`ocil run METHOD` with small settings into tmp_path/run."""

    def call(method: str, *words: object) -> Any:
        kept = {k: v for k, v in small.items() if method != "finetune" or k == "limit_per_class"}
        return ocil("run", method, *flags(kept), "--out", tmp_path / "run", *words)

    return call


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("eer",), r"Unknown method 'eer'. Did you mean 'er'\? Known: "),
        (("finetune", "--memory", 5), "finetune keeps no memory, but memory is 5; leave it out"),
        (("er", "--data", "mnits"), r"No data set 'mnits'; .* Did you mean 'mnist'\?"),
        (("er", "--memroy", 5), r"--memroy.* Did you mean '--memory'\? See `ocil run er --help`"),
        (("er", "--memory", 0), "memory is 0 but must be at least 1"),
        (("er", "--memory=-3"), "memory is -3 but must be at least 1"),
        (("er", "--memory", "many"), "--memory"),
        (("er", "--memory", 10**13), "Not enough memory .* lower --memory"),
        (("er", "--memory", 10**20), "must be below 2"),
        (("er", "--lr", "nan"), "lr is nan but must be above 0 and finite"),
        (("er", "--lr"), "--lr"),
        (("er", "--order", "random"), "must be 'split' or 'joint'"),
        (("er", "--device", "gpu"), "Unknown device 'gpu'; choose cpu, cuda or mps"),
        (("er", "--readout", "maen"), r"Unknown read-out 'maen' for er. Did you mean 'mean'\?"),
        (("er", "--preset", "refrence"), r"Unknown preset 'refrence'. Did you mean 'reference'\?"),
        (("er", "--net", "mpl"), r"no network 'mpl'.* Did you mean 'mlp'\?"),
        (("er", "--augment", "afine"), "affine"),
        (("er", "--augment", "full"), "needs 3 channels, but the images have 1"),
        (("er", "--classes-per-task", 11), "the data set has only 10 classes"),
        (("er", "--threads", 0), "threads is 0 but must be at least 1"),
        (("er", "--config", "nowhere.toml"), "Cannot read nowhere.toml: No such file"),
        (("er", "extra"), "extra"),
        (("er", "--lr", "1e30", "--optimizer", "sgd"), "loss became .* lower --lr"),
    ],
)
def test_a_run_that_cannot_be(runner: Ocil, words: tuple[object, ...], said: str) -> None:
    found = runner(*words)
    assert found.is_sentence(), found
    assert re.search(said, found.err), found.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rnu",), r"Unknown command 'rnu'. Did you mean 'run'\?"),
        (("xyzzy",), "Unknown command 'xyzzy'. Commands: run, "),
        (("run",), "`ocil run` needs a method first. Methods: "),
        (("run", "--memory", 5), "needs a method first"),
        (("resume",), "ocil resume"),
        (("show", "nowhere"), "no folder nowhere"),
        (("resume", "nowhere"), "nowhere holds no run: settings.json is missing"),
        (("report", "nowhere"), "no folder nowhere"),
        (("data", "get"), "needs the name of a data set"),
        (("data", "check", "mnits"), r"Did you mean 'mnist'\?"),
        (("data", "chekc"), "'list' or 'get' or 'check'"),
        (("completion", "fish"), "'bash' or 'zsh'"),
    ],
)
def test_a_command_that_cannot_be(ocil: Ocil, words: tuple[object, ...], said: str) -> None:
    found = ocil(*words)
    assert found.is_sentence(), found
    assert re.search(said, found.err), found.err


def test_cuda_that_is_not_there(runner: Ocil, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = runner("er", "--device", "cuda")
    assert found.is_sentence()
    assert "'cuda' is not available on this machine; use --device cpu" in found.err


# ------------------------------------------------------------------ data


def write_idx(folder: Path, cut: int = 0, shape: tuple[int, ...] = (20, 28, 28)) -> None:
    folder.mkdir(parents=True)
    for name, size in (("train", shape), ("t10k", shape)):
        head = struct.pack(">HBB3I", 0, 8, 3, *size)
        body = np.zeros(size, np.uint8).tobytes()
        content = head + body[: len(body) - (cut if name == "train" else 0)]
        (folder / f"{name}-images-idx3-ubyte").write_bytes(content)
        labels = (np.arange(size[0]) % 10).astype(np.uint8)
        head = struct.pack(">HBBI", 0, 8, 1, size[0])
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


def test_data_that_are_missing(runner: Ocil, tmp_path: Path) -> None:
    found = runner("er", "--data", "mnist", "--data-dir", tmp_path / "nowhere")
    assert found.is_sentence()
    assert "mnist is not in" in found.err
    assert "ocil data get mnist" in found.err
    assert not (tmp_path / "run").exists()


def test_a_data_file_that_is_missing_cut_or_of_another_size(runner: Ocil, tmp_path: Path) -> None:
    write_idx(tmp_path / "one" / "mnist")
    (tmp_path / "one" / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    found = runner("er", "--data", "mnist", "--data-dir", tmp_path / "one")
    assert found.is_sentence()
    assert "lacks t10k-labels-idx1-ubyte" in found.err
    write_idx(tmp_path / "two" / "mnist", cut=100)
    found = runner("er", "--data", "mnist", "--data-dir", tmp_path / "two")
    assert found.is_sentence()
    assert "announces 15680 bytes, it holds only 15580" in found.err
    write_idx(tmp_path / "three" / "mnist", shape=(20, 27, 28))
    found = runner("er", "--data", "mnist", "--data-dir", tmp_path / "three")
    assert found.is_sentence()
    assert "(27, 28), expected (28, 28)" in found.err
    assert not (tmp_path / "run").exists()


def test_a_cache_that_cannot_be_written(
    ocil: Ocil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    found = ocil("data", "get", "mnist")
    assert found.is_sentence()
    assert "Cannot write mnist into" in found.err
    assert "--data-dir" in found.err


# ------------------------------------------------------------------ folders and disks


def test_a_folder_with_another_run(runner: Ocil, tmp_path: Path) -> None:
    assert runner("er").code == 0
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    found = runner("er", "--seed", 5)
    assert found.is_sentence()
    assert "already holds a run. Continue it with `ocil resume" in found.err
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_a_folder_below_a_file_and_a_name_too_long(runner: Ocil, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = runner("er", "--out", tmp_path / "file" / "run")
    assert found.is_sentence()
    assert "Cannot write" in found.err
    assert runner("er", "--out", tmp_path / "file").is_sentence()
    assert runner("er", "--out", tmp_path / ("x" * 300)).is_sentence()


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_folder_that_cannot_be_written(
    runner: Ocil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", fail)
        found = runner("er")
    assert found.is_sentence()
    assert f"settings.json: {os.strerror(number)}. Free some space or choose another" in found.err
    assert runner("er").code == 0  # nothing was left behind that would stand in the way


def test_a_folder_that_may_not_be_looked_into(
    runner: Ocil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root every folder may be; `stat` says what another user would hear."""
    stat = os.stat

    def refuse(path: Any, *words: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path / "run")):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *words, **more)

    monkeypatch.setattr(os, "stat", refuse)
    found = runner("er")
    assert found.is_sentence()
    assert "Permission denied" in found.err


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
from ocil.cli import main
main(sys.argv[1:])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of POSIX")
def test_a_disk_without_room_for_a_checkpoint(
    ocil: Ocil, tmp_path: Path, small: dict[str, Any], flags: Callable[..., list[str]]
) -> None:
    """A real failure to write: files may have 20 000 bytes and a checkpoint has more."""
    out = tmp_path / "run"
    call = [sys.executable, "-c", LIMITED, "run", "er", *flags(small), "--out", str(out)]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "File too large. Free some space" in done.stderr
    assert list((out / "checkpoints").iterdir()) == []
    assert ocil("resume", out).code == 0


# ------------------------------------------------------------------ files of others


def test_hostile_settings_and_records(ocil: Ocil, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"schema": 1, "method": "er"}')
    found = ocil("resume", tmp_path)
    assert found.is_sentence()
    assert "settings.json cannot be read" in found.err
    (tmp_path / "record.json").write_text('{"schema": 99}')
    found = ocil("show", tmp_path)
    assert found.is_sentence()
    assert "has record schema 99, this ocil reads up to 1; upgrade ocil" in found.err
    (tmp_path / "record.json").write_text("{")
    assert ocil("show", tmp_path).is_sentence()


def test_a_record_of_a_newer_schema_is_not_resumed_or_overwritten(
    ocil: Ocil, runner: Ocil, tmp_path: Path
) -> None:
    assert runner("er").code == 0
    path = tmp_path / "run" / "record.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"schema": 2}))
    before = path.read_bytes()
    assert ocil("resume", tmp_path / "run").is_sentence()
    assert runner("er").is_sentence()
    assert path.read_bytes() == before


def test_a_forged_checkpoint(ocil: Ocil, runner: Ocil, tmp_path: Path) -> None:
    """Sums that agree around tensors of the wrong shape."""
    import hashlib

    import torch
    from safetensors.torch import load, save

    assert runner("er").code == 0
    (tmp_path / "run" / "record.json").unlink()
    for path in (tmp_path / "run" / "checkpoints").glob("*.json"):
        tensors = load(path.with_suffix(".safetensors").read_bytes())
        tensors["learner.model.net.hidden1.weight"] = torch.zeros(3, 3)
        blob = save(tensors)
        path.with_suffix(".safetensors").write_bytes(blob)
        note = json.loads(path.read_bytes()) | {"sha256": hashlib.sha256(blob).hexdigest()}
        del note["check"]
        note["check"] = hashlib.sha256(files.canonical(note)).hexdigest()
        path.write_text(json.dumps(note))
    found = ocil("resume", tmp_path / "run")
    assert found.is_sentence(), found
    assert "size mismatch" in found.err


def test_a_run_that_is_not_finished_is_not_shown(ocil: Ocil, runner: Ocil, tmp_path: Path) -> None:
    assert runner("er").code == 0
    (tmp_path / "run" / "record.json").unlink()
    found = ocil("show", tmp_path / "run")
    assert found.is_sentence()
    assert "is not finished (step 15 of 15); `ocil resume" in found.err
    (tmp_path / "run" / "events.jsonl").write_bytes(b"5\n[[\n\xff\n")
    assert "step 0 of ?" in ocil("show", tmp_path / "run").err


@pytest.mark.parametrize("part", ["events.jsonl", "checkpoints"])
def test_parts_of_a_run_without_its_settings(ocil: Ocil, tmp_path: Path, part: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / part).mkdir()
    found = ocil("show", tmp_path / "run")
    assert found.is_sentence()
    assert "without its settings.json" in found.err
    assert "resume" not in found.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("lr = ", "is not valid TOML"),
        ("lr = " + "9" * 5000, "is not valid TOML: Exceeds the limit"),
        ("lr = " + "9" * 400, "lr in .*a.toml has 1329 bits but must be below"),
        ("memory = 0x" + "f" * 5000, "memory in .*a.toml has 20000 bits but must be below"),
        ("data = [0x" + "f" * 5000 + "]", "data in .*a.toml is list but must be str"),
        ("lr = " + "[" * 5000, "is not valid TOML"),
        ("memroy = 5", "Unknown setting 'memroy' in .*a.toml. Did you mean 'memory'"),
        ('lr = "fast"', "lr in .*a.toml is 'fast' but must be float"),
        ("data = ['mnist']", "must be str"),
        ("[data]\nx = 1", "must be str"),
        ("preset = 5", "must be str"),
        ("memory = 0", "memory is 0 but must be at least 1"),
        ('method = "joint"', "is for another method than er"),
    ],
)
def test_a_bad_toml_file(ocil: Ocil, tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "a.toml").write_text(content)
    found = ocil("run", "er", "--out", tmp_path / "run", "--config", tmp_path / "a.toml")
    assert found.is_sentence(), found
    assert re.search(said, found.err), found.err
