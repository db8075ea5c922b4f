from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil.data import load, parquet
from ocil.errors import OcilError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def pixels(count: int, size: int = 32) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, size, size, 3)).astype(np.uint8)


def write(
    path: Path, encode: Callable[..., bytes], count: int, columns: tuple[str, str], **more: Any
) -> None:
    images = [encode(item, "WEBP", lossless=True) for item in pixels(count, more.get("size", 32))]
    images = more.get("images", images)
    labels = more.get("labels", [i % 10 for i in range(count)])
    struct = pa.array(
        [None if data is None else {"bytes": data, "path": None} for data in images],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({columns[0]: struct, columns[1]: labels}), path)


@pytest.fixture
def make(tmp_path: Path, image: Callable[..., bytes]) -> Callable[..., Path]:
    def make(columns: tuple[str, str] = ("image", "label"), **more: Any) -> Path:
        write(tmp_path / "cifar10" / "train.parquet", image, 20, columns)
        write(tmp_path / "cifar10" / "test.parquet", image, 10, columns, **more)
        return tmp_path

    return make


@pytest.mark.parametrize("columns", [("image", "label"), ("img", "fine_label")])
def test_parquet(make: Callable[..., Path], columns: tuple[str, str]) -> None:
    dataset = load("cifar10", make(columns))
    np.testing.assert_array_equal(dataset.train_images, pixels(20).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(dataset.test_images, pixels(10).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(dataset.train_labels, np.arange(20) % 10)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"size": 30}, r"row 0 is an image of 30x30 pixels, expected 32x32"),
        ({"labels": [*range(9), 10]}, r"label '10' is not an integer in 0..9"),
        ({"labels": [*range(9), None]}, "label 'None' is not"),
        ({"labels": [float(i) for i in range(10)]}, "labels are double, not integers"),
        ({"labels": [str(i) for i in range(10)]}, "labels are string, not integers"),
        ({"images": [b"no image"] * 10}, "row 0 is an image of 8 bytes that cannot be decoded"),
        ({"images": [None] * 10}, "row 0 has no image"),
    ],
)
def test_wrong_tables(
    make: Callable[..., Path], one_sentence: Callable[..., None], more: dict, message: str
) -> None:
    with pytest.raises(OcilError, match=message) as caught:
        load("cifar10", make(**more))
    one_sentence(caught.value, "test.parquet", "copy it again")


def test_truncated_image(make: Callable[..., Path], image: Callable[..., bytes]) -> None:
    data = [image(item) for item in pixels(10)]
    data[4] = data[4][:-500]
    with pytest.raises(OcilError, match="row 4 is an image"):
        load("cifar10", make(images=data))


def test_truncated_table(make: Callable[..., Path], one_sentence: Callable[..., None]) -> None:
    root = make()
    path = root / "cifar10" / "train.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(OcilError, match="its table cannot be read") as caught:
        load("cifar10", root)
    one_sentence(caught.value, str(path))


def test_damage_inside_a_table(make: Callable[..., Path]) -> None:
    root = make()
    path = root / "cifar10" / "train.parquet"
    data = bytearray(path.read_bytes())
    data[4:2000] = bytes(1996)
    path.write_bytes(bytes(data))
    with pytest.raises(OcilError, match=r"train\.parquet cannot be used"):
        load("cifar10", root)


def test_other_columns(make: Callable[..., Path]) -> None:
    with pytest.raises(OcilError, match="no columns image or img"):
        load("cifar10", make(("picture", "label")))


@pytest.mark.parametrize("item", ["a.png", {"path": "a.png"}, {"bytes": "text"}, [1, 2]])
def test_a_column_without_bytes(make: Callable[..., Path], item: Any) -> None:
    root = make()
    table = pa.table({"image": [item] * 10, "label": list(range(10))})
    pq.write_table(table, root / "cifar10" / "test.parquet")
    with pytest.raises(OcilError, match="its column image holds no bytes"):
        load("cifar10", root)


def test_too_many_rows(make: Callable[..., Path], image: Callable[..., bytes]) -> None:
    root = make()
    one = image(pixels(1)[0])
    write(
        root / "cifar10" / "test.parquet",
        image,
        0,
        ("image", "label"),
        images=[one] * 10_001,
        labels=[0] * 10_001,
    )
    with pytest.raises(OcilError, match="10001 rows, expected 1 to 10000"):
        load("cifar10", root)


def test_half_of_the_files(make: Callable[..., Path]) -> None:
    root = make()
    (root / "cifar10" / "test.parquet").unlink()
    with pytest.raises(OcilError, match=r"lacks test\.parquet;"):
        load("cifar10", root)


def test_without_pyarrow(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = make()
    original = builtins.__import__

    def refuse(name: str, *arguments: Any, **more: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return original(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(OcilError, match=r"pip install ocil\[data\]"):
        load("cifar10", root)


def test_a_table_may_be_as_large_as_the_limit_and_no_larger(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make()
    sizes = []
    for name in ("train", "test"):
        facts = pq.ParquetFile(root / "cifar10" / f"{name}.parquet").metadata
        sizes.append(sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups)))
    monkeypatch.setattr(parquet, "_MAX_TABLE_BYTES", max(sizes) - 1)
    with pytest.raises(OcilError, match=f"unpacks to {max(sizes)} bytes"):
        load("cifar10", root)
    monkeypatch.setattr(parquet, "_MAX_TABLE_BYTES", max(sizes))
    assert len(load("cifar10", root).train_labels) == 20
