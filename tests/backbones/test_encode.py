"""Vectors of texts and pictures, against the model asked directly."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModel, AutoTokenizer, ViTImageProcessorPil

from ocil import OcilError
from ocil.backbones.encode import Pictures, Texts, opened
from ocil.samples import BadInput

TEXTS = ["the cat sat", "a good film", "the dog barks a bad plot"]


def changed(folder: Path, tmp_path: Path, file: str, **values: object) -> Path:
    """A copy of a model with other values in one of its JSON files."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    known = json.loads((copy / file).read_text()) if (copy / file).exists() else {}
    (copy / file).parent.mkdir(exist_ok=True)
    (copy / file).write_text(json.dumps(known | values))
    return copy


def test_a_text_is_the_mean_of_its_tokens_at_unit_length(text_folder: Path) -> None:
    net, tokens = AutoModel.from_pretrained(text_folder), AutoTokenizer.from_pretrained(text_folder)
    encoder = opened(text_folder, "hf:x", "cpu")
    assert isinstance(encoder, Texts)
    found = encoder.vectors(TEXTS, "auto")
    for text, z in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            mean = net(**tokens(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(z, mean / mean.norm(), atol=1e-5)


def test_bits_do_not_depend_on_what_else_is_in_the_call(text_folder: Path) -> None:
    encoder = opened(text_folder, "hf:x", "cpu")
    whole = encoder.vectors(TEXTS, "auto")
    alone = np.concatenate([encoder.vectors(np.array([text]), "auto") for text in TEXTS])
    assert np.array_equal(whole, alone)


def test_first_token_where_its_files_say_so(text_folder: Path, tmp_path: Path) -> None:
    folder = changed(text_folder, tmp_path, "1_Pooling/config.json", pooling_mode_cls_token=True)
    net, tokens = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        first = net(**tokens(TEXTS[0], return_tensors="pt")).last_hidden_state[0, 0]
    found = opened(folder, "hf:x", "cpu").vectors(TEXTS[:1], "auto")[0]
    np.testing.assert_allclose(found, first / first.norm(), atol=1e-5)


def test_long_texts_are_cut(text_folder: Path) -> None:
    encoder = opened(text_folder, "hf:x", "cpu")
    long, longer = encoder.vectors(["cat " * 10, "cat " * 300], "auto")
    assert np.array_equal(long, longer)


def test_a_picture_as_transformers_prepares_it(picture_folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    prepare, net = (
        ViTImageProcessorPil.from_pretrained(picture_folder),
        AutoModel.from_pretrained(picture_folder),
    )
    with torch.no_grad():
        shown = prepare(list(pixels), return_tensors="pt")["pixel_values"]
        wanted = net(shown).last_hidden_state.mean(1)
    encoder = opened(picture_folder, "hf:x", "cpu")
    assert isinstance(encoder, Pictures) and encoder.shape == (3, 16, 16)
    np.testing.assert_allclose(encoder.vectors(pixels, "auto"), wanted, atol=1e-5)
    floats = encoder.vectors(pixels.astype(np.float32) / 255, "auto")
    np.testing.assert_allclose(floats, wanted, atol=1e-5)


def test_files_and_arrays_of_another_size(picture_folder: Path, tmp_path: Path) -> None:
    encoder = opened(picture_folder, "hf:x", "cpu")
    blank = np.full((1, 40, 30, 3), 200, np.uint8)
    Image.fromarray(blank[0]).save(tmp_path / "a.png")
    files = encoder.vectors([tmp_path / "a.png", str(tmp_path / "a.png")], "auto")
    np.testing.assert_allclose(files[:1], encoder.vectors(blank, "auto"), atol=1e-5)
    np.testing.assert_allclose(files[:1], encoder.vectors(blank[..., 0], "auto"), atol=1e-5)
    wide = np.zeros((1, 16, 48, 3), np.uint8)
    wide[:, :, 16:32] = 255  # the middle, which is what is kept
    white = np.full((1, 16, 16, 3), 255, np.uint8)
    assert np.array_equal(encoder.vectors(wide, "auto"), encoder.vectors(white, "auto"))


@pytest.mark.parametrize("given", [[""], [3, 4], "one text", [], np.zeros((2, 3)), ["  "]])
def test_texts_are_a_list_of_texts(text_folder: Path, given: object) -> None:
    with pytest.raises(BadInput):
        opened(text_folder, "hf:x", "cpu").vectors(given, "auto")


def test_pictures_are_pictures(picture_folder: Path, tmp_path: Path) -> None:
    encoder = opened(picture_folder, "hf:x", "cpu")
    (tmp_path / "b.png").write_bytes(b"no picture")
    for given in ([tmp_path / "b.png"], [tmp_path / "none.png"], np.zeros((2, 5)), [str(tmp_path)]):
        with pytest.raises(OcilError):
            encoder.vectors(given, "auto")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"hidden_size": 1 << 20, "num_attention_heads": 1}, "weights, but the file has"),
        ({"intermediate_size": 30}, "lacks weights|cannot be used"),
        ({"num_hidden_layers": 3}, "lacks weights such as"),
        ({"model_type": "no-such-kind"}, "cannot be used"),
        ({"model_type": "mine", "auto_map": {"AutoConfig": "a.B", "AutoModel": "a.C"}}, "cannot"),
    ],
)
def test_a_configuration_that_does_not_fit(
    text_folder: Path, tmp_path: Path, values: dict[str, object], said: str
) -> None:
    folder = changed(text_folder, tmp_path, "config.json", **values)
    (folder / "a.py").write_text("raise SystemExit('executed')")
    with pytest.raises(OcilError, match=said):
        opened(folder, "hf:x", "cpu")


@pytest.mark.parametrize("size", [{"height": 0, "width": 5}, {"shortest_edge": 10**9}, "big"])
def test_a_size_of_pictures_that_is_none(
    picture_folder: Path, tmp_path: Path, size: object
) -> None:
    folder = changed(picture_folder, tmp_path, "preprocessor_config.json", size=size)
    with pytest.raises(OcilError, match="cannot be used"):
        opened(folder, "hf:x", "cpu")
