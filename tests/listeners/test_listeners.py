"""Listeners hear of finished runs and can do them no harm."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.listeners import emit

Ocil = Callable[..., Any]

FOREIGN = """
import json, sys
from pathlib import Path

def good(place):
    return lambda record: Path(place).write_text(json.dumps(record))

def broken(place):
    def hear(record):
        raise RuntimeError("I am\\nbroken")
    return hear

def leaving(place):
    return lambda record: sys.exit(3)

def meddling(place):
    def hear(record):
        for row in record["evaluations"]:
            row["correct"][:] = [0] * len(row["correct"])
        record["settings"].clear()
        record.clear()
    return hear

def unmade(place):
    raise ValueError("no such place")
"""


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package, as pip would install it, with entry points for five listeners."""
    site = tmp_path / "site"
    about = site / "foreign-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "foreign_listeners.py").write_text(FOREIGN)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n")
    names = ("good", "broken", "leaving", "meddling", "unmade")
    lines = [f"{name} = foreign_listeners:{name}\n" for name in names]
    (about / "entry_points.txt").write_text("[ocil.listeners]\n" + "".join(lines))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "foreign_listeners", raising=False)


@pytest.fixture
def words(flags: Callable[..., list[str]], small: dict[str, Any], tmp_path: Path) -> list[str]:
    return ["run", "er", *flags(small), "--out", str(tmp_path / "run")]


def record_of(folder: Path) -> dict[str, Any]:
    """What a run came to, without what its times and the machine decide."""
    record = json.loads((folder / "record.json").read_text())
    return {
        k: v
        for k, v in record.items()
        if k not in ("seconds", "images_per_second", "peak_memory_mb", "commit", "dirty")
    }


@pytest.mark.usefixtures("foreign")
def test_a_listener_of_another_package_hears_the_record(
    ocil: Ocil, words: list[str], tmp_path: Path
) -> None:
    heard = tmp_path / "heard.json"
    said = ocil(*words, "--listen", f"good={heard}", "--listen", f"good={tmp_path / 'too.json'}")
    assert said.code == 0, said.err
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert json.loads(heard.read_text()) == record
    assert (tmp_path / "too.json").read_text() == heard.read_text()


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("name", ["broken", "leaving", "meddling"])
def test_no_listener_does_harm_to_a_run(
    ocil: Ocil,
    words: list[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    heard = tmp_path / "heard.json"
    with caplog.at_level(logging.WARNING):
        said = ocil(*words, "--listen", f"{name}=x", "--listen", f"good={heard}")
    assert said.code == 0, said.err
    assert "Accuracy in percent" in said.out
    assert json.loads(heard.read_text())["evaluations"]  # those behind it hear all the same
    ocil(*words[:-1], tmp_path / "alone")
    assert record_of(tmp_path / "run") == record_of(tmp_path / "alone")
    expected = {
        "broken": r"Listener 'broken=x' failed (RuntimeError: I am\x0abroken); "
        "the run and its record are whole.",
        "leaving": "Listener 'leaving=x' failed (SystemExit: 3); the run and its record are whole.",
    }
    assert caplog.messages == ([expected[name]] if name in expected else [])
    assert not any(entry.exc_info for entry in caplog.records)  # one sentence, no traceback


@pytest.mark.usefixtures("foreign")
def test_a_run_that_goes_on_is_heard_too(
    ocil: Ocil, plan: Callable[..., Any], tmp_path: Path
) -> None:
    from ocil.run.folder import RunFolder

    RunFolder(tmp_path / "run").create(plan())
    said = ocil("resume", "--listen", f"good={tmp_path / 'heard.json'}", tmp_path / "run")
    assert said.code == 0, said.err
    assert json.loads((tmp_path / "heard.json").read_text())["method"] == "er"


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(
    ("wish", "sentence"),
    [
        ("tensorboard", "--listen is 'tensorboard' but must be NAME=PLACE"),
        ("tensorboard=", "but must be NAME=PLACE"),
        ("tensorbord=logs", "Did you mean 'tensorboard'?"),
        ("unmade=x", "'unmade' cannot be used (ValueError: no such place); mend it or leave it"),
    ],
)
def test_a_wish_that_cannot_be_met_is_said_before_the_run(
    ocil: Ocil, words: list[str], tmp_path: Path, wish: str, sentence: str
) -> None:
    said = ocil(*words, "--listen", wish)
    assert said.is_sentence(), said.err
    assert sentence in said.err
    assert not (tmp_path / "run").exists()


def test_every_listener_gets_a_copy_of_its_own() -> None:
    record = {"evaluations": [{"correct": [1, 2]}]}
    heard: list[Any] = []

    def meddler(copy: dict[str, Any]) -> None:
        copy["evaluations"][0]["correct"].clear()

    emit({"a": meddler, "b": heard.append}, record)
    assert heard == [{"evaluations": [{"correct": [1, 2]}]}] == [record]
