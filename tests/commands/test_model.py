"""`ocil run --data PATH`, `learn`, `predict`, `inspect` through the real command line."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ocil as package
from ocil import data
from ocil.commands import learn as command
from ocil.data.own import read_own

Ocil = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Digits 0 and 1 as pictures of two sizes, in folders with strange names."""
    digits = data.load("digits")
    for c, name in enumerate(("=zero", "<one>")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for k, i in enumerate(np.flatnonzero(digits.train_labels == c)[:20]):
            picture = Image.fromarray(digits.train_images[i, 0]).resize((8 + k % 2, 8))
            picture.save(tmp_path / "photos" / name / f"{k}.png")
    return tmp_path / "photos"


def test_a_run_on_a_folder_and_its_resumption(ocil: Ocil, folder: Path, tmp_path: Path) -> None:
    words = ("run", "er", "--data", folder, "--memory", 20, "--width", 16, "--replay", 8)
    assert ocil(*words, "--resize", 8, "--out", tmp_path / "run").code == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["class_names"] == ["<one>", "=zero"]
    assert str(folder) not in json.dumps(record)
    (tmp_path / "run" / "record.json").unlink()
    moved = folder.rename(tmp_path / "elsewhere")
    assert ocil("resume", tmp_path / "run").is_sentence()
    picture = moved / "=zero" / "3.png"
    picture.rename(tmp_path / "3.png")
    said = ocil("resume", tmp_path / "run", "--data", moved)
    assert said.is_sentence()
    assert "give the data it was started with" in said.err
    (tmp_path / "3.png").rename(picture)
    assert ocil("resume", tmp_path / "run", "--data", moved).code == 0
    again = json.loads((tmp_path / "run" / "record.json").read_text())
    assert again["state_sha256"] == record["state_sha256"]


@pytest.mark.parametrize("more", [(), ("--net", "mlp", "--augment", "none")])
def test_the_recorded_command_of_own_data_runs_again(
    ocil: Ocil, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: Any
) -> None:
    picture = next(folder.rglob("*.png"))
    picture.with_name("broken.png").write_bytes(b"no picture")
    words = ("run", "er", "--data", folder, "--memory", 20, "--width", 8, "--replay", 8, *more)
    reading = ("--resize", 8, "--bad-images", "skip", "--out", tmp_path / "run")
    assert ocil(*words, *reading).code == 0
    first = json.loads((tmp_path / "run" / "record.json").read_text())
    assert str(tmp_path) not in json.dumps(first)
    (tmp_path / "elsewhere").mkdir()
    folder.rename(tmp_path / "elsewhere" / folder.name)
    monkeypatch.chdir(tmp_path / "elsewhere")
    [_, *again] = shlex.split(first["command"])
    assert ocil(*again, "--out", "again").code == 0
    second = json.loads(Path("again/record.json").read_text())
    for key in ("settings", "command", "data", "state_sha256", "job", "preset"):
        assert second[key] == first[key], key


def test_learn_predict_inspect(ocil: Ocil, folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "my.ocil"
    (tmp_path / "photos" / "<one>").rename(tmp_path / "later")
    start = ("learn", folder, "--model", model, "--method", "er", "--memory", 20, "--resize", 8)
    said = ocil(*start)
    assert said.code == 0
    assert "1 classes, 1 of them new" in " ".join(said.out.split())
    assert "contains training images" in " ".join(said.out.split())
    assert ocil(*start).is_sentence()  # a model keeps its settings
    (tmp_path / "later").rename(tmp_path / "photos" / "<one>")
    assert "2 classes, 1 of them new" in " ".join(
        ocil("learn", folder, "--model", model).out.split()
    )
    before = model.read_bytes()
    (folder / "=zero" / "bad.png").write_bytes(b"nonsense")
    assert ocil("learn", folder, "--model", model).is_sentence()
    assert model.read_bytes() == before
    files = [*sorted((folder / "=zero").iterdir())]
    assert ocil("predict", model, *files).is_sentence()
    said = ocil("predict", model, *files, "--csv", "--bad-images", "skip")
    rows = list(csv.DictReader(said.out.splitlines()))
    assert len(rows) == 20
    assert {row["label"] for row in rows} <= {"'=zero", "<one>"}
    np.save(tmp_path / "a.npy", np.zeros((3, 8, 8), np.uint8))
    assert "a.npy[2]" in ocil("predict", model, tmp_path / "a.npy", "--csv").out
    assert ocil("inspect", model).code == 0
    page = (tmp_path / "my.ocil.html").read_text()
    assert "&lt;one&gt;" in page and "<one>" not in page
    assert 8 <= page.count("data:image/png") <= 16  # at most eight a class


def taught(folder: Path, file: Path) -> package.Classifier:
    """A model of both classes, exact and quick: statistics of the pixels."""
    parts = read_own(folder, 8)["train"]
    model = package.Classifier("slda", net="identity").partial_fit(*parts)
    model.flush().save(file)
    return model


def test_predict_takes_folders_patterns_and_several_labels(
    ocil: Ocil, folder: Path, tmp_path: Path
) -> None:
    model = tmp_path / "my.ocil"
    taught(folder, model)
    (folder / ".hidden.png").write_bytes(b"nonsense")
    said = ocil("predict", model, folder, "--csv", "--top", 2)
    rows = list(csv.DictReader(said.out.splitlines()))
    assert len(rows) == 40
    assert all(row["label"] != row["label 2"] for row in rows)
    assert all(float(row["probability"]) >= float(row["probability 2"]) for row in rows)
    names = [row["file"] for row in rows]
    assert names == sorted(names)
    pattern = ocil("predict", model, folder / "*one*" / "1*.png", "--csv").out.splitlines()
    assert len(pattern) == 1 + 11
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8) * 4).save(tmp_path / "odd.png")
    said = ocil("predict", model, tmp_path / "odd.png", "--csv", "--unknown", "--top", 2).out
    assert said.splitlines()[1].startswith(f"{tmp_path / 'odd.png'},unknown,,")
    for words in ((folder / "x*.png",), (tmp_path / "my.ocil", "--top", 0), ()):
        assert ocil("predict", model, *words).is_sentence()


def test_score_names_what_is_confused(ocil: Ocil, folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "my.ocil"
    taught(folder, model)
    (folder / "<one>" / "0.png").rename(folder / "=zero" / "from-one.png")
    (folder / "other").mkdir()
    Image.new("L", (8, 8)).save(folder / "other" / "a.png")
    said = ocil("score", model, folder)
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert lines[0] == "97.5 % of 40 samples right."
    assert lines[1].strip() == "=zero: 95.2 % of 21, else mostly <one>"
    assert "1 samples of classes that were never learned are left out." in said.out
    assert (tmp_path / "my.ocil.confusion.png").read_bytes()[:4] == b"\x89PNG"
    shutil.rmtree(folder / "=zero")
    shutil.rmtree(folder / "<one>")
    assert "holds no class" in ocil("score", model, folder).err


def test_forget_and_relabel_change_the_file(ocil: Ocil, folder: Path, tmp_path: Path) -> None:
    model = tmp_path / "my.ocil"
    taught(folder, model)
    wrong = sorted((folder / "=zero").iterdir())[:3]
    assert ocil("relabel", model, *wrong, "--was", "=zero", "--label", "nought").code == 0
    assert package.load(model).counts_ == {"<one>": 20, "=zero": 17, "nought": 3}
    assert ocil("forget", model, "nought", wrong[0]).code == 0
    assert package.load(model).counts_["nought"] == 2
    assert "2 classes" in ocil("forget", model, "<one>").out
    before = model.read_bytes()
    for words in (("forget", model, "<one>"), ("forget", model, "nought", *wrong),
                  ("relabel", model, wrong[0], "--was", "x", "--label", "y")):  # fmt: skip
        assert ocil(*words).is_sentence()
    assert ocil("forget", model, "nought").code == 0
    assert "delete the file" in ocil("forget", model, "=zero").err
    assert model.read_bytes() != before


def test_labels_of_the_command_line_are_of_the_models_kind(ocil: Ocil, tmp_path: Path) -> None:
    x, y = np.eye(4, dtype=np.float32).repeat(5, 0), np.arange(4).repeat(5)
    package.Classifier("slda", net="identity").partial_fit(x, y).save(tmp_path / "a.ocil")
    assert ocil("forget", tmp_path / "a.ocil", "2").code == 0
    assert package.load(tmp_path / "a.ocil").classes_.tolist() == [0, 1, 3]
    assert "labels are integers" in ocil("forget", tmp_path / "a.ocil", "two").err


def test_learn_takes_steps_and_rate_for_a_new_model(
    ocil: Ocil, folder: Path, tmp_path: Path
) -> None:
    start = ("learn", folder, "--model", tmp_path / "a.ocil", "--resize", 8, "--method", "er")
    assert ocil(*start, "--updates", 3, "--lr", 0.01).code == 0
    settings = package.load(tmp_path / "a.ocil").get_params()
    assert (settings["updates"], settings["lr"]) == (3, 0.01)
    again = ocil("learn", folder, "--model", tmp_path / "a.ocil", "--lr", 0.02)
    assert again.is_sentence()
    assert "leave out --lr" in again.err


@pytest.mark.parametrize("there", [False, True])
def test_what_another_process_wrote_in_the_meantime_is_kept(
    ocil: Ocil, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    file = tmp_path / "a.ocil"
    words = ("learn", folder, "--model", file)
    start = ("--resize", 8, "--method", "er", "--memory", 20)
    if there:
        assert ocil(*words, *start).code == 0
    learn_all, other = command._Lesson._learn_all, b"the other one's"

    def together(*given: Any) -> None:
        learn_all(*given)
        file.write_bytes(other)

    monkeypatch.setattr(command._Lesson, "_learn_all", together)
    said = ocil(*words, *(() if there else start))
    assert said.is_sentence()
    assert "Run this command again" in said.err
    assert file.read_bytes() == other


def test_inspect_shows_the_health_of_mixtures(ocil: Ocil, tmp_path: Path) -> None:
    x, y = np.eye(4).repeat(10, 0), np.arange(4).repeat(10)
    package.Classifier("otc", net="identity").partial_fit(x, y).save(tmp_path / "a.ocil")
    said = ocil("inspect", tmp_path / "a.ocil", "--out", tmp_path / "page.html")
    assert "1 components" in said.out
    assert "at floor" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("predict", "none.ocil", "a.png"), "no model file none.ocil"),
        (("inspect", "none.ocil"), "no model file none.ocil"),
        (("learn", "none", "--model", "m.ocil"), "Cannot read none"),
        (("learn", "none"), "model"),
        (("run", "er", "--data", "./none"), "Cannot read none"),
        (("run", "er", "--resize", 8), "for data of your own"),
    ],
)
def test_what_cannot_be(
    ocil: Ocil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = ocil(*words)
    assert found.is_sentence(), found
    assert said in found.err


def test_labels_that_are_numbers_stay_as_they_are(ocil: Ocil, tmp_path: Path) -> None:
    x = np.repeat(np.eye(4, dtype=np.float32)[:2], 10, 0)
    np.savez(tmp_path / "n.npz", x=x, y=np.repeat([-1, 1], 10))
    np.save(tmp_path / "rows.npy", x)
    (tmp_path / "rows.npy").rename(tmp_path / "ROWS.NPY")
    model = tmp_path / "m.ocil"
    assert ocil("learn", tmp_path / "n.npz", "--model", model, "--lr", 0.01).code == 0
    rows = list(csv.reader(ocil("predict", model, tmp_path / "ROWS.NPY", "--csv").out.splitlines()))
    assert {row[1] for row in rows[1:]} <= {"-1", "1"} and len(rows) == 21
    assert ocil("predict", model).is_sentence()


def test_the_place_of_a_model_is_looked_at_first(ocil: Ocil, folder: Path, tmp_path: Path) -> None:
    found = ocil("learn", folder, "--resize", 8, "--model", tmp_path / "none" / "m.ocil")
    assert found.is_sentence() and "There is no folder" in found.err


def test_results_without_records_write_nothing(ocil: Ocil, tmp_path: Path) -> None:
    (tmp_path / "RESULTS.md").write_text("my own words")
    assert ocil("results", tmp_path).is_sentence()
    assert (tmp_path / "RESULTS.md").read_text() == "my own words"


def test_of_a_flag_given_twice_the_last_counts(ocil: Ocil, tmp_path: Path) -> None:
    words = ("run", "er", "--preset", "reference", "--preset", "default", "--limit-per-class", 4)
    assert ocil(*words, "--out", tmp_path / "run").code == 0
    assert json.loads((tmp_path / "run" / "record.json").read_text())["settings"]["ema"] > 0
