from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from ocil.data import SOURCES, Dataset, load
from ocil.data.dataset import fingerprint
from ocil.errors import OcilError


def parts(n: int = 4, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    images = np.arange(n * 12, dtype=np.uint8).reshape(n, 3, 2, 2)
    return images, np.arange(n, dtype=np.int64) % classes


def made(train: tuple[np.ndarray, np.ndarray], known: str | None = None) -> Dataset:
    return Dataset("x", *train, *parts(2), ("a", "b"), known).checked()


def test_fingerprint_is_the_hash_written_in_its_docstring() -> None:
    dataset = made(parts())
    digest = hashlib.sha256()
    for array in dataset.arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    assert dataset.fingerprint == digest.hexdigest()


def test_fingerprint_sees_values_shape_and_layout() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(4, 6)
    same = np.asfortranarray(array)
    other = array.copy()
    other[3, 5] += 1
    assert fingerprint([array]) == fingerprint([same])
    assert fingerprint([array]) != fingerprint([other])
    assert fingerprint([array]) != fingerprint([array.reshape(6, 4)])


def test_fingerprint_in_chunks_equals_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(1000, dtype=np.int64).reshape(100, 10)
    whole = fingerprint([array])
    monkeypatch.setattr("ocil.data.dataset._CHUNK", 7 * 80)
    assert fingerprint([array]) == whole


def test_known_fingerprint_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = made(parts(), "known")
    monkeypatch.setattr("ocil.data.dataset.fingerprint", lambda arrays: 1 / 0)
    assert dataset.fingerprint == "known"


def test_arrays_cannot_be_written() -> None:
    dataset = made(parts())
    with pytest.raises(ValueError, match="read-only"):
        dataset.train_images[0] = 0


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.zeros((2, 1, 2, 2), np.float32), np.array([0, 1]), "uint8"),
        (np.zeros((2, 2, 2), np.uint8), np.array([0, 1]), "uint8"),
        (np.zeros((2, 1, 2, 2), np.uint8), np.array([0.0, 1.0]), "int64"),
        (np.zeros((2, 1, 2, 2), np.uint8), np.array([0, 1, 1]), "one int64 label"),
        (np.zeros((2, 1, 2, 2), np.uint8), np.array([0, 2]), "0 to 2"),
        (np.zeros((2, 1, 2, 2), np.uint8), np.array([-1, 1]), "-1 to 1"),
        (np.zeros((2, 1, 2, 2), np.uint8), np.array([1, 1]), "class 0 has no image"),
        (np.zeros((0, 1, 2, 2), np.uint8), np.zeros(0, np.int64), "0 images"),
        (np.zeros((2, 1, 3, 3), np.uint8), np.array([0, 1]), "one size"),
    ],
)
def test_wrong_arrays_are_refused(images: np.ndarray, labels: np.ndarray, message: str) -> None:
    good = np.zeros((2, 1, 2, 2), np.uint8), np.array([0, 1])
    with pytest.raises(OcilError, match=message):
        Dataset("x", images, labels, *good, ("a", "b")).checked()


def test_digits_split_is_every_fifth_of_each_class() -> None:
    from sklearn.datasets import load_digits

    dataset = load("digits")
    pixels, target = load_digits(return_X_y=True)
    assert isinstance(dataset, Dataset)
    for label in range(10):
        mine = np.rint(pixels[target == label] * 255 / 16).reshape(-1, 1, 8, 8)
        is_test = np.arange(len(mine)) % 5 == 4
        np.testing.assert_array_equal(
            dataset.test_images[dataset.test_labels == label], mine[is_test]
        )
        np.testing.assert_array_equal(
            dataset.train_images[dataset.train_labels == label], mine[~is_test]
        )
    assert dataset.train_images.max() == 255
    assert load("digits").fingerprint == dataset.fingerprint


def test_protocols_name_the_settings_of_a_run() -> None:
    for source in SOURCES.values():
        assert {"classes_per_task", "net", "augment", "memory"} <= set(source.protocol)
        assert len(source.class_names) in (0, source.classes)
        assert source.classes % source.protocol["classes_per_task"] == 0


def test_import_loads_neither_torch_nor_readers() -> None:
    code = (
        "import sys, ocil.data, ocil.data.check, ocil.data.download; "
        "print([m for m in ('torch', 'pyarrow', 'sklearn', 'PIL', 'rich') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
