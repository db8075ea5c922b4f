"""latents.safetensors: what is written is read again, and anything else is one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from ocil.errors import OcilError
from ocil.run import latentfile
from ocil.run.latentfile import Latents, dump, read

NOTE: dict[str, Any] = {
    "version": 1,
    "method": "otc",
    "data": "digits",
    "job": "ab" * 32,
    "readout": "similarity",
    "class_names": ["cat", "dog"],
}


def arrays() -> dict[str, Any]:
    draw = np.random.default_rng(0)
    return {
        "features": draw.normal(size=(6, 4)).astype(np.float32),
        "labels": np.array([0, 1, 0, 1, 1, 0], np.int32),
        "centroids": draw.normal(size=(3, 4)).astype(np.float32),
        "centroid_labels": np.array([0, 1, 1], np.int32),
        "weights": np.array([1.0, 0.25, 0.75], np.float32),
        "variances": np.ones((3, 4), np.float32),
    }


def content(**changes: Any) -> Latents:
    return Latents(**({"note": NOTE} | arrays() | changes))


def test_what_was_written_is_read(tmp_path: Path) -> None:
    made, path = content(), tmp_path / "a"
    path.write_bytes(dump(made))
    found = read(path)
    assert found.note == NOTE
    assert found.class_names == ["cat", "dog"]
    for name in ("labels", "centroids", "centroid_labels", "weights", "variances"):
        assert np.array_equal(getattr(found, name), getattr(made, name))
    assert found.features.dtype == np.float32
    assert np.allclose(found.features, made.features, atol=2e-3)  # 16 bits


def test_what_does_not_fit_16_bits_is_kept_in_32(tmp_path: Path) -> None:
    made, path = content(features=arrays()["features"] * 1e6), tmp_path / "a"
    path.write_bytes(dump(made))
    assert np.array_equal(read(path).features, made.features)


def test_variances_and_centroids_may_be_missing(tmp_path: Path) -> None:
    empty = np.zeros((0, 4), np.float32)
    changes: dict[str, Any] = {"centroids": empty, "variances": None, "weights": empty[:, 0]}
    path = tmp_path / "a"
    path.write_bytes(dump(content(**changes, centroid_labels=np.zeros(0, np.int32))))
    found = read(path)
    assert found.variances is None
    assert found.centroids.shape == (0, 4)


@pytest.mark.parametrize(
    ("header", "problem"),
    [(16 << 20, "no whole file of latents"), ((16 << 20) + 1, "its header would have 16777217")],
)
def test_a_header_is_read_up_to_16_mb(tmp_path: Path, header: int, problem: str) -> None:
    path = tmp_path / "a"
    with path.open("wb") as stream:
        stream.write(header.to_bytes(8, "little"))
        stream.truncate(18 << 20)
    with pytest.raises(OcilError, match=problem):
        read(path)


def changed(note: dict[str, Any] | None = None, **changes: Any) -> Callable[[], bytes]:
    """The bytes of a file with other arrays (None takes one out) and another note."""
    kept = {k: v for k, v in (arrays() | changes).items() if v is not None}
    return lambda: save(kept, metadata={latentfile.KEY: json.dumps(NOTE | (note or {}))})


def noted(text: str) -> Callable[[], bytes]:
    return lambda: save(arrays(), metadata={latentfile.KEY: text})


def cut(keep: int) -> Callable[[], bytes]:
    return lambda: changed()()[:keep]


nan = arrays()["features"] * np.float32(np.nan)
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "cut off"),
    "huge header": (lambda: b"\xff" * 7 + b"\x7f" + b"{}" * 20, "its header would have 9"),
    "header beyond the end": (lambda: (10**6).to_bytes(8, "little") + b"{}", "cut off"),
    "cut off": (cut(-7), "no whole file of latents"),
    "cut in the header": (cut(30), "cut off"),
    "not JSON": (lambda: (4).to_bytes(8, "little") + b"{]}x", "no whole file of latents"),
    "deep JSON": (
        lambda: (10**5).to_bytes(8, "little") + b"[" * 10**5, "no whole file of latents"
    ),
    "a list": (lambda: (2).to_bytes(8, "little") + b"[]", "no whole file of latents"),
    "no metadata": (lambda: save(arrays()), "no whole file of latents"),
    "another program's": (lambda: save(arrays(), metadata={"a": "b"}), "no whole file"),
    "note is no JSON": (noted("{"), "no whole file of latents"),
    "note is a list": (noted("[]"), "has no version"),
    "newer": (changed({"version": 2}), "was made by a newer ocil; upgrade ocil"),
    "version is text": (changed({"version": "1"}), "has no version"),
    "no job": (changed({"job": None}), "has no text for 'job'"),
    "long text": (changed({"data": "x" * 10_001}), "has no text for 'data'"),
    "no names": (changed({"class_names": []}), "has no class names"),
    "names are numbers": (changed({"class_names": [1, 2]}), "class names that are not text"),
    "no features": (changed(features=None), "lacks 'features'"),
    "no labels": (changed(labels=None), "lacks 'labels'"),
    "NaN": (changed(features=nan), "NaN or infinite numbers in 'features'"),
    "infinite": (changed(weights=np.full(3, np.inf, np.float32)), "infinite numbers in 'weights'"),
    "flat features": (changed(features=np.zeros(6, np.float32)), "'features' of a wrong type"),
    "whole numbers": (changed(features=np.zeros((6, 4), np.int32)), "'features' of a wrong type"),
    "no points": (changed(features=np.zeros((0, 4), np.float32)), "holds no features"),
    "no width": (changed(features=np.zeros((6, 0), np.float32)), "holds no features"),
    "few labels": (changed(labels=np.zeros(5, np.int32)), "has 'labels' of a wrong shape"),
    "labels in 64 bits": (changed(labels=np.zeros(6, np.int64)), "'labels' of a wrong shape"),
    "label too large": (changed(labels=np.full(6, 2, np.int32)), "'labels' that are none of its"),
    "label below 0": (changed(labels=np.full(6, -1, np.int32)), "'labels' that are none of its"),
    "narrow centroids": (
        changed(centroids=np.zeros((3, 3), np.float32)), "centroids of another width"
    ),
    "a weight too few": (changed(weights=np.ones(2, np.float32)), "no weight for each centroid"),
    "weight below 0": (changed(weights=-np.ones(3, np.float32)), "no weight for each centroid"),
    "centroid of no class": (
        changed(centroid_labels=np.full(3, 9, np.int32)), "'centroid_labels' that are none"
    ),
    "variance below 0": (
        changed(variances=-np.ones((3, 4), np.float32)), "no variances for each centroid"
    ),
    "few variances": (changed(variances=np.ones((2, 4), np.float32)), "no variances for each"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_one_sentence(tmp_path: Path, case: str) -> None:
    make, said = HOSTILE[case]
    path = tmp_path / "a.safetensors"
    path.write_bytes(make())
    with pytest.raises(OcilError) as caught:
        read(path)
    text = str(caught.value)
    assert said in text
    assert text.startswith(f"{path} ")
    assert text.endswith(".")
    assert "\n" not in text


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.truncate(latentfile.MAX_BYTES + 1)
    with pytest.raises(OcilError, match="67108865 bytes, at most 67108864 are read"):
        read(path)
    with pytest.raises(OcilError, match="Cannot read"):
        read(tmp_path)


def test_a_centroid_may_weigh_nothing(tmp_path: Path) -> None:
    file = tmp_path / "latents.safetensors"
    file.write_bytes(dump(content(weights=np.array([1.0, 0.0, 1.0], np.float32))))
    assert read(file).weights.tolist() == [1.0, 0.0, 1.0]


def test_one_feature_vector_is_enough_and_so_is_one_dimension(tmp_path: Path) -> None:
    file, whole = tmp_path / "latents.safetensors", arrays()
    one = {"features": whole["features"][:1], "labels": whole["labels"][:1]}
    file.write_bytes(dump(content(**one)))
    assert read(file).features.shape == (1, 4)
    narrow = {name: whole[name][:, :1] for name in ("features", "centroids", "variances")}
    file.write_bytes(dump(content(**narrow)))
    assert read(file).features.shape == (6, 1)
