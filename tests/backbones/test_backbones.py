"""Backbones by name: found, hashed, saved with a classifier or beside it."""

import copy
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ocil import Classifier, OcilError, backbones, load
from ocil.inspection import describe
from ocil.modelfile import read

X = ["the cat sat", "a good film", "the dog sat", "a bad plot"] * 6
Y = ["pet", "film", "pet", "film"] * 6


@pytest.fixture
def folder(text_folder: Path, tmp_path: Path) -> Path:
    """One that a test may take away."""
    return shutil.copytree(text_folder, tmp_path / "model")


def test_learns_texts(folder: Path) -> None:
    model = Classifier("slda", memory=None, net=f"hf:{folder}").partial_fit(X, Y)
    assert model.score(X, Y) == 1 and model.predict_one(X[0]) == "pet"
    assert model._fitted().form.shape == (16,) and model.n_features_in_ == 16
    model.forget_samples(X[:1], Y[:1])
    assert sum(model.counts_.values()) + model.pending_ == 23
    assert model.fit(X[:12], Y[:12]).counts_ == {"film": 6, "pet": 6}


def test_whatever_the_chunks(folder: Path) -> None:
    whole = Classifier(net=f"hf:{folder}", memory=8).partial_fit(X, Y)
    parts = Classifier(net=f"hf:{folder}", memory=8)
    for i in range(0, len(X), 5):
        parts.partial_fit(X[i : i + 5], Y[i : i + 5])
    assert whole.state_sha256() == parts.state_sha256()


def test_a_file_names_its_backbone(folder: Path, tmp_path: Path) -> None:
    name, file = f"hf:{folder}", tmp_path / "a.ocil"
    model = Classifier(net=name, memory=8).partial_fit(X, Y)
    model.save(file)
    again = load(file)
    assert again.net == name and np.array_equal(again.scores(X), model.scores(X))
    assert again.partial_fit(X, Y).state_sha256() == model.partial_fit(X, Y).state_sha256()
    assert "not in this file" in describe(read(file)).about["backbone"]
    moved = folder.rename(tmp_path / "elsewhere")
    with pytest.raises(OcilError, match="not on disk"):
        load(file).predict(X)
    assert load(file, net=f"hf:{moved}").predict(X[:2]).tolist() == again.predict(X[:2]).tolist()
    (moved / "config.json").write_text((moved / "config.json").read_text() + " ")
    with pytest.raises(OcilError, match="other content"):
        load(file, net=f"hf:{moved}")
    with pytest.raises(OcilError, match="names no backbone"):
        load(file, net="mlp")


def test_a_file_carries_its_backbone(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.ocil"
    model = Classifier(net=f"hf:{folder}", memory=8).partial_fit(X, Y)
    model.save(file, backbone=True)
    wanted = model.scores(X)
    shutil.rmtree(folder)
    again = load(file)
    assert np.array_equal(again.scores(X), wanted)
    assert np.array_equal(pickle.loads(pickle.dumps(again)).scores(X), wanted)
    again.save(file)  # it still carries it
    assert "carried by this file" in describe(read(file)).about["backbone"]
    assert np.array_equal(load(file).scores(X), wanted)
    again.save(file, backbone=False)
    with pytest.raises(OcilError, match="not on disk"):
        load(file).predict(X)


def test_carried_files_are_those_of_a_backbone(folder: Path) -> None:
    model = backbones.find(f"hf:{folder}")
    files = model.files()
    assert backbones.restored(model.note(), files, "cpu", None) is not None
    altered = {**files, "config.json": files["config.json"][:-1]}
    for odd in (altered, {**files, "../a": files["config.json"]}, {"a.py": files["config.json"]}):
        with pytest.raises(ValueError, match="carries"):
            backbones.restored(model.note(), odd, "cpu", None)
    for note in ({**model.note(), "name": "mlp"}, {**model.note(), "bytes": "2"}):
        with pytest.raises(ValueError, match="no name, hash or size"):
            backbones.restored(note, {}, "cpu", None)


def test_copies_and_clones(folder: Path) -> None:
    model = Classifier(net=f"hf:{folder}", memory=8).partial_fit(X, Y)
    assert np.array_equal(copy.deepcopy(model).scores(X), model.scores(X))
    other = Classifier(**model.get_params())
    assert other.net == model.net and other.fit(X, Y).score(X, Y) > 0


@pytest.mark.parametrize("name", ["hf:nobody/no such model", "hf:", "hf:/no/such/folder"])
def test_no_such_model(name: str) -> None:
    with pytest.raises(OcilError, match="is not on disk, and could not be fetched") as error:
        Classifier(net=name).partial_fit(X, Y)
    assert "\n" not in str(error.value)


def test_pickled_weights_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(OcilError, match=r"no file model\.safetensors"):
        Classifier(net=f"hf:{folder}").partial_fit(X, Y)


def test_pictures_by_the_command_line(
    ocil: Callable[..., Any], picture_folder: Path, tmp_path: Path
) -> None:
    draw = np.random.default_rng(0)
    for label, light in (("dark", 40), ("light", 200)):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(12):
            pixels = draw.integers(light, light + 50, (40 + i, 50, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{i}.png")
    photos, file = tmp_path / "photos", tmp_path / "p.ocil"
    net = f"hf:{picture_folder}"
    assert ocil("learn", photos, "--model", file, "--net", net, "--updates", 20).code == 0
    assert ocil("learn", photos, "--model", file).code == 0
    assert load(file)._fitted().form.shape == (16,)
    assert ocil("predict", file, photos / "dark", "--csv").out.count(",dark,") == 12
    assert load(file).predict(sorted((photos / "light").iterdir())).tolist() == ["light"] * 12
    scored = ocil("score", file, photos, "--out", tmp_path / "c.png")
    assert "100.0 % of 24 samples right" in scored.out
