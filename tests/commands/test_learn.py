"""`ocil learn`: one writer at a time, stopped and killed at any step, and the same bits."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ocil as package
from ocil.commands import learn as command
from ocil.errors import OcilError
from ocil.files import writing
from ocil.session import Session

Ocil = Callable[..., Any]
NEW = ("--method", "er", "--memory", 20, "--lr", 0.01, "--seed", 3)


def vectors(path: Path, count: int, seed: int = 0) -> Path:
    """`count` vectors of four classes."""
    y = np.arange(count) % 4
    x = np.eye(6)[y] + np.random.default_rng(seed).normal(size=(count, 6)) / 4
    np.savez(path, x=x.astype(np.float32), y=y)
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return vectors(tmp_path / "a.npz", 137)


def said(found: Any) -> str:
    return " ".join((found.out + found.err).split())


def learned(model: Path) -> int:
    return sum(package.load(model).counts_.values())


def at_step(monkeypatch: pytest.MonkeyPatch, step: int, what: Callable[[], Any]) -> None:
    """Do something once, in the middle of this step."""
    learn = Session.learn

    def instead(session: Session, *given: Any, **more: Any) -> Any:
        if session.step == step:
            monkeypatch.setattr(Session, "learn", learn)
            what()
        return learn(session, *given, **more)

    monkeypatch.setattr(Session, "learn", instead)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("step", [0, 1, 7, 12])
@pytest.mark.parametrize("waiting", [0, 3])
def test_a_signal_saves_and_the_same_command_goes_on(
    ocil: Ocil, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    number: int, step: int, waiting: int,
) -> None:  # fmt: skip
    words = ["learn", data, "--model", tmp_path / "m.ocil"]
    alone = ["learn", data, "--model", tmp_path / "alone.ocil"]
    if waiting:  # a model that was saved with samples that wait for a batch
        x, y = np.load(data)["x"][:13], np.load(data)["y"][:13]
        model = package.Classifier("er", memory=20).partial_fit(x, y)
        assert model.pending_ == 3
        for file in (words[-1], alone[-1]):
            model.save(file)
        step += 1
    else:
        words, alone = [*words, *NEW], [*alone, *NEW]
    assert ocil(*alone).code == 0
    at_step(monkeypatch, step, lambda: signal.raise_signal(number))
    found = ocil(*words)
    assert found.code == 128 + number
    # the samples of the stopped step and of those before it, perhaps with some that wait
    steps = 10 * (step + 1) - (13 if waiting else 0)
    assert any(f"Stopped after {n} of 137 samples" in said(found) for n in (steps, steps + 3))
    assert f"Go on with `ocil learn {data} --model" in said(found)
    found = ocil(*words)
    assert found.code == 0, found
    assert "Going on after" in said(found)
    assert learned(tmp_path / "m.ocil") == 137 + (13 if waiting else 0)
    one, other = (package.load(tmp_path / f"{name}.ocil") for name in ("alone", "m"))
    assert one.state_sha256() == other.state_sha256()
    assert (tmp_path / "alone.ocil").read_bytes() == (tmp_path / "m.ocil").read_bytes()


def test_a_break_between_two_saves_costs_no_sample(
    ocil: Ocil, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SAVE_EVERY", 30)
    assert ocil("learn", data, "--model", tmp_path / "alone.ocil", *NEW).code == 0
    words = ("learn", data, "--model", tmp_path / "m.ocil", *NEW)
    for step in (1, 4, 5, 11, 12):  # nothing is saved yet, then at 30, 60, 90, 120 samples
        at_step(monkeypatch, step, lambda: 1 / 0)
        assert ocil(*words).code == 1
    assert learned(tmp_path / "m.ocil") == 120
    assert ocil(*words).code == 0
    assert (tmp_path / "alone.ocil").read_bytes() == (tmp_path / "m.ocil").read_bytes()


def test_once_done_the_same_command_learns_again(ocil: Ocil, data: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.ocil"
    assert ocil("learn", data, "--model", model, *NEW).code == 0
    assert ocil("learn", data, "--model", model).code == 0
    assert learned(model) == 2 * 137
    refused = ocil("learn", data, "--model", model, *NEW)
    assert refused.is_sentence() and "keeps its settings" in refused.err


def test_other_data_in_between_and_the_place_is_kept(
    ocil: Ocil, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "m.ocil"
    at_step(monkeypatch, 2, lambda: signal.raise_signal(signal.SIGTERM))
    assert ocil("learn", data, "--model", model, *NEW).code == 128 + signal.SIGTERM
    other = vectors(tmp_path / "b.npz", 40, seed=1)
    refused = ocil("learn", other, "--model", model, "--lr", 0.5)
    assert refused.is_sentence() and "leave out --lr" in refused.err
    found = ocil("learn", other, "--model", model)
    assert found.code == 0 and "Not finished: a.npz, 30 of 137 samples" in said(found)
    assert learned(model) == 30 + 40
    refused = ocil("learn", data, "--model", model, "--lr", 0.5)
    assert refused.is_sentence() and "leave out --lr" in refused.err
    assert ocil("learn", data, "--model", model).code == 0
    assert learned(model) == 137 + 40
    assert "Not finished" not in said(ocil("learn", other, "--model", model))


def test_one_writer_at_a_time(ocil: Ocil, data: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.ocil"
    assert ocil("learn", data, "--model", model, *NEW).code == 0
    before, link = model.read_bytes(), tmp_path / "link.ocil"
    link.symlink_to(model)
    with writing(model):
        for file in (model, link):
            refused = ocil("learn", data, "--model", file, "--wait", 0.1)
            assert refused.is_sentence() and "after 0.1 seconds" in refused.err
        with pytest.raises(OcilError, match="Another process is writing"), writing(model, 0):
            pass
    assert model.read_bytes() == before
    assert ocil("learn", data, "--model", link).code == 0
    assert learned(model) == 2 * 137
    refused = ocil("learn", data, "--model", model, "--wait", -1)
    assert refused.is_sentence() and "--wait is -1" in refused.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "link.ocil", "m.ocil"]


def test_saving_waits_for_who_learns(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = package.Classifier("er", memory=20).fit(np.eye(4), [0, 1, 2, 3])
    monkeypatch.setattr("ocil.files.writing.__wrapped__.__defaults__", (0.1,))
    with writing(tmp_path / "m.ocil"), pytest.raises(OcilError, match="Another process is writing"):
        model.save(tmp_path / "m.ocil")
    model.save(tmp_path / "m.ocil")


def test_what_killed_writers_left_is_removed(ocil: Ocil, data: Path, tmp_path: Path) -> None:
    own = [".m.ocil.1.tmp", ".m.ocil.99999.tmp"]
    others = [".m.ocil..tmp", ".m.ocil.1a.tmp", ".n.ocil.1.tmp", "m.ocil.1.tmp", ".m.ocil.tmp"]
    for name in own + others:
        (tmp_path / name).write_bytes(b"half")
    assert ocil("learn", data, "--model", tmp_path / "m.ocil", *NEW).code == 0
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"a.npz", "m.ocil", *others}


def picture(path: Path, mode: str, colour: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (8, 8), colour).save(path)
    return path


def test_colour_into_a_grey_model_is_refused(ocil: Ocil, tmp_path: Path) -> None:
    for label in ("a", "b"):
        for i in range(6):
            picture(tmp_path / "grey" / label / f"{i}.png", "L", 20 * i)
            picture(tmp_path / "colour" / label / f"{i}.png", "RGB", (20 * i, 0, 200))
    grey, colour = tmp_path / "grey.ocil", tmp_path / "colour.ocil"
    for data, model in ((tmp_path / "grey", grey), (tmp_path / "colour", colour)):
        assert ocil("learn", data, "--model", model, "--method", "er", "--net", "mlp").code == 0
    before = grey.read_bytes()
    one = tmp_path / "colour" / "a" / "1.png"
    for words in (
        ("learn", tmp_path / "colour", "--model", grey),
        ("learn", tmp_path / "colour", "--model", grey, "--bad-images", "skip"),
        ("predict", grey, one),
        ("predict", grey, one, "--bad-images", "skip"),
    ):
        found = ocil(*words)
        assert found.is_sentence(), found
        assert "is in colour, but the model learns grey pictures of 8x8 pixels" in found.err
    assert grey.read_bytes() == before
    same = picture(tmp_path / "same.png", "RGB", (40, 40, 40))  # grey, stored as colours
    plain = picture(tmp_path / "l.png", "L", 40)
    one, other = ocil("predict", grey, same, plain, "--csv").out.splitlines()[1:]
    assert one.split(",")[1:] == other.split(",")[1:]
    assert ocil("predict", colour, tmp_path / "grey" / "a" / "1.png").code == 0
