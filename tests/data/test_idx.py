from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ocil.data import load
from ocil.errors import OcilError


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize(
    ("zipped", "ending"), [(True, ".gz"), (False, ""), (True, ""), (False, ".gz")]
)
def test_plain_or_gzip_whatever_the_name(
    make_idx: Callable[..., Path], name: str, zipped: bool, ending: str
) -> None:
    dataset = load(name, make_idx(name, zipped, ending))
    assert dataset.train_images.shape == (20, 1, 28, 28)
    assert dataset.test_images.shape == (10, 1, 28, 28)
    assert dataset.train_images.dtype == np.uint8
    np.testing.assert_array_equal(dataset.train_labels, np.arange(20) % 10)
    expected = np.random.default_rng(0).integers(0, 256, (20, 28, 28))
    np.testing.assert_array_equal(dataset.train_images[:, 0], expected)
    assert len(dataset.class_names) == 10


def damage(root: Path, base: str, data: bytes) -> Path:
    path = root / "mnist" / f"{base}.gz"
    path.write_bytes(data)
    return path


def test_truncated_gzip(make_idx: Callable[..., Path], one_sentence: Callable[..., None]) -> None:
    root = make_idx()
    path = root / "mnist" / "train-images-idx3-ubyte.gz"
    damage(root, "train-images-idx3-ubyte", path.read_bytes()[:-200])
    with pytest.raises(OcilError) as caught:
        load("mnist", root)
    one_sentence(caught.value, str(path), "ocil data get mnist")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not an IDX file"),
        (b"hello world", "not an IDX file"),
        (struct.pack(">HBB3I", 0, 0x0D, 3, 20, 28, 28), "type code 0x0d"),
        (struct.pack(">HBB", 0, 8, 3) + b"\0\0", "within its header"),
        (struct.pack(">HBB", 0, 8, 9) + b"\0" * 99, "9 axes"),
        (struct.pack(">HBB3I", 0, 8, 3, 20, 30, 28) + b"\0" * 16800, r"shape \(30, 28\)"),
        (struct.pack(">HBB3I", 0, 8, 3, 20, 28, 28) + b"\0" * 15679, "holds only 15679"),
        (struct.pack(">HBB3I", 0, 8, 3, 20, 28, 28) + b"\0" * 15681, "holds more"),
        (struct.pack(">HBB3I", 0, 8, 3, 0, 28, 28), "announces 0 items"),
        (struct.pack(">HBB3I", 0, 8, 3, 19, 28, 28) + b"\0" * 14896, "20 labels for the 19"),
    ],
)
@pytest.mark.parametrize("zipped", [True, False])
def test_wrong_image_files(
    make_idx: Callable[..., Path],
    one_sentence: Callable[..., None],
    data: bytes,
    message: str,
    zipped: bool,
) -> None:
    root = make_idx()
    damage(root, "train-images-idx3-ubyte", gzip.compress(data) if zipped else data)
    with pytest.raises(OcilError, match=message) as caught:
        load("mnist", root)
    one_sentence(caught.value, "ocil data get mnist")


def test_a_boastful_header_allocates_nothing(make_idx: Callable[..., Path]) -> None:
    root = make_idx()
    head = struct.pack(">HBB3I", 0, 8, 3, 1_000_000_000, 28, 28)
    damage(root, "train-images-idx3-ubyte", gzip.compress(head + b"\0" * 10_000_000))
    tracemalloc.start()
    with pytest.raises(OcilError, match="announces 1000000000 items, expected 1 to 60000"):
        load("mnist", root)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_label_out_of_range(
    make_idx: Callable[..., Path], idx: Callable[[np.ndarray], bytes]
) -> None:
    root = make_idx()
    labels = np.arange(20) % 10
    labels[3] = 10
    damage(root, "train-labels-idx1-ubyte", idx(labels))
    with pytest.raises(OcilError, match=r"label 10 is not in 0..9"):
        load("mnist", root)


def test_a_class_without_images(
    make_idx: Callable[..., Path], idx: Callable[[np.ndarray], bytes]
) -> None:
    root = make_idx()
    damage(root, "t10k-labels-idx1-ubyte", idx(np.zeros(10, int)))
    with pytest.raises(OcilError, match="class 1 has no image"):
        load("mnist", root)
