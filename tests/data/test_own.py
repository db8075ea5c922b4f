"""Data of one's own: folders, arrays, tables; corrupt, huge and hostile ones."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ocil.data.own import OwnData, looks_own, read_own
from ocil.data.pictures import decoded
from ocil.errors import OcilError

PIL = pytest.importorskip("PIL.Image")


def png(side: tuple[int, int] = (8, 8), colour: int = 0, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    fill = (colour,) * 3 if mode == "RGB" else colour
    PIL.new(mode, side, fill).save(stream, "PNG")
    return stream.getvalue()


def bomb(width: int = 60_000, height: int = 60_000) -> bytes:
    """A PNG of a few hundred bytes that claims 3.6 thousand million pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts
    )
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two classes, six pictures each, of two sizes."""
    for c, name in enumerate(("ant", "bee")):
        (tmp_path / "set" / name).mkdir(parents=True)
        for i in range(6):
            (tmp_path / "set" / name / f"{i}.png").write_bytes(png((8 + i % 2, 8), 40 * i + c))
    (tmp_path / "set" / "ant" / "notes.txt").write_text("not a picture")
    return tmp_path / "set"


def test_a_folder_per_class(folder: Path) -> None:
    with pytest.raises(OcilError, match=r"2 sizes .*--resize 64"):
        OwnData(folder).dataset
    found = OwnData(folder, resize=8).dataset
    assert found.class_names == ("ant", "bee")
    assert found.train_images.shape == (10, 3, 8, 8)
    assert found.test_labels.tolist() == [0, 1]
    assert found.name == f"set-{found.fingerprint[:8]}"
    assert found.train_images[:, 0, 0, 0].tolist() == [0, 40, 80, 120, 200, 1, 41, 81, 121, 201]
    assert OwnData(folder, resize=9).dataset.name != found.name


def test_grey_pictures_have_one_channel_and_parts_are_taken_as_they_are(tmp_path: Path) -> None:
    for part in ("train", "test"):
        for name in ("a", "b"):
            (tmp_path / part / name).mkdir(parents=True)
            (tmp_path / part / name / "1.png").write_bytes(png(mode="L"))
    found = OwnData(tmp_path).dataset
    assert found.train_images.shape == found.test_images.shape == (2, 1, 8, 8)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", png()[:45], bomb()], ids=["empty", "text", "cut", "bomb"]
)
def test_a_corrupt_picture_is_named_and_fatal_or_passed_over(
    folder: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "bee" / "bad.png").write_bytes(content)
    with pytest.raises(OcilError, match=r"bee/bad\.png cannot be used.*--bad-images skip"):
        OwnData(folder, 8).dataset
    assert len(OwnData(folder, 8, "skip").dataset.train_images) == 10
    assert "bad.png" in caplog.text


def test_a_decompression_bomb_is_not_decoded(folder: Path) -> None:
    (folder / "bee" / "bomb.png").write_bytes(bomb(9000, 9000))
    with pytest.raises(OcilError, match="claims 9000x9000 pixels"):
        OwnData(folder, 8).dataset


def test_links_lone_classes_and_empty_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "cat").mkdir()
    (folder / "cat" / "1.png").write_bytes(png())
    with pytest.raises(OcilError, match="class cat has 1 item"):
        OwnData(folder, 8).dataset
    (folder / "cat" / "2.png").symlink_to(folder / "ant" / "0.png")
    with pytest.raises(OcilError, match="is a link"):
        OwnData(folder, 8).dataset
    (tmp_path / "empty").mkdir()
    with pytest.raises(OcilError, match="one folder per class"):
        OwnData(tmp_path / "empty").dataset
    with pytest.raises(OcilError, match="No such file"):
        OwnData(tmp_path / "none.npz").dataset
    with pytest.raises(OcilError, match="--resize is 0"):
        OwnData(folder, 0).dataset


def test_arrays(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 5)), np.array(["a", "b"] * 10)
    np.savez(tmp_path / "a.npz", X=x, y=y)
    found = OwnData(tmp_path / "a.npz").dataset
    assert found.train_images.dtype == np.float32
    assert found.train_images.shape == (16, 5)
    assert found.class_names == ("a", "b")
    pictures = np.zeros((20, 8, 8, 3), np.uint8)
    np.savez_compressed(tmp_path / "b.npz", x_train=pictures, y_train=np.arange(20) % 10,
                        x_test=pictures[:10], y_test=np.arange(10))  # fmt: skip
    found = OwnData(tmp_path / "b.npz").dataset
    assert found.test_images.shape == (10, 3, 8, 8)
    assert found.class_names[9] == "9"


def member(path: Path, header: dict[str, Any], body: bytes = b"") -> None:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, header)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", stream.getvalue() + body)
        archive.writestr("y.npy", stream.getvalue() + body)


def test_hostile_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    member(path, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}, b"1234")
    with pytest.raises(OcilError, match="announces 8796093022208 bytes and holds 4"):
        OwnData(path).dataset
    member(path, {"descr": "|O", "fortran_order": False, "shape": (2,)})
    with pytest.raises(OcilError, match="Python objects"):
        OwnData(path).dataset
    path.write_bytes(b"PK nonsense")
    with pytest.raises(OcilError, match="cannot be used"):
        OwnData(path).dataset
    np.savez(path, a=np.zeros(3))
    with pytest.raises(OcilError, match="no arrays x and y"):
        OwnData(path).dataset
    np.savez(path, x=np.full((4, 2), np.nan), y=[0, 0, 1, 1])
    with pytest.raises(OcilError, match="NaN"):
        OwnData(path).dataset


def table(kind: str = "image") -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    label = pyarrow.array([0, 1] * 6)
    names = {"label": {"names": ["ant", "bee"], "_type": "ClassLabel"}}
    note = {b"huggingface": json.dumps({"info": {"features": names}}).encode()}
    if kind == "image":
        items = pyarrow.array([{"bytes": png((8 + i % 2, 8)), "path": None} for i in range(12)])
    else:
        items = pyarrow.array([[float(i), 1.0] for i in range(12)])
    return pyarrow.table({kind: items, "label": label}).replace_schema_metadata(note)


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parquet.write_table(table(), tmp_path / "a.parquet")
    found = OwnData(tmp_path / "a.parquet", resize=8).dataset
    assert found.class_names == ("ant", "bee")
    assert found.train_images.shape == (10, 3, 8, 8)
    parquet.write_table(table("embedding"), tmp_path / "b.parquet")
    assert OwnData(tmp_path / "b.parquet").dataset.train_images.shape == (10, 2)
    parquet.write_table(pa.table({"u": [1.0, 2, 3, 4], "v": [0, 1, 0, 1], "y": ["a", "b"] * 2}),
                        tmp_path / "c.parquet")  # fmt: skip
    assert OwnData(tmp_path / "c.parquet").dataset.train_images.shape == (2, 2)
    (tmp_path / "c.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(OcilError, match="cannot be used"):
        OwnData(tmp_path / "c.parquet").dataset


def save_to_disk(folder: Path, content: Any) -> None:
    """As Hugging Face's save_to_disk lays a split out."""
    import pyarrow as pa

    folder.mkdir(parents=True)
    name = "data-00000-of-00001.arrow"
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, content.schema) as w:
        w.write_table(content)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    (folder / "dataset_info.json").write_text("{}")


def test_a_hugging_face_data_set_on_disk(tmp_path: Path) -> None:
    save_to_disk(tmp_path / "one", table())
    assert OwnData(tmp_path / "one", resize=8).dataset.train_images.shape == (10, 3, 8, 8)
    for split in ("train", "test"):
        save_to_disk(tmp_path / "both" / split, table())
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    found = OwnData(tmp_path / "both", resize=8).dataset
    assert len(found.train_images) == len(found.test_images) == 12
    state = tmp_path / "one" / "state.json"
    outside = "../both/train/data-00000-of-00001.arrow"
    state.write_text(json.dumps({"_data_files": [{"filename": outside}]}))
    with pytest.raises(OcilError, match="not one of its own folder"):
        OwnData(tmp_path / "one", resize=8).dataset
    for bad in ("{}", "[[[", '{"_data_files": [5]}'):
        state.write_text(bad)
        with pytest.raises(OcilError):
            OwnData(tmp_path / "one", resize=8).dataset
    (tmp_path / "both" / "train" / "data-00000-of-00001.arrow").write_bytes(b"nonsense")
    with pytest.raises(OcilError):
        OwnData(tmp_path / "both", resize=8).dataset


def test_what_is_a_path_and_what_a_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    assert looks_own("set") and looks_own("./x") and looks_own("a.npz")
    assert not looks_own("mnits")
    (folder.parent / "mnist").mkdir()
    assert not looks_own("mnist")
    assert set(read_own(folder, 8)) == {"train"}


@pytest.mark.parametrize("others", [(), ("test",), ("val",), ("test", "val")])
def test_parts_are_no_classes(tmp_path: Path, others: tuple[str, ...]) -> None:
    for part in ("train", *others):
        for name in ("ant", "bee", ".cache"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(4):
                (tmp_path / part / name / f"{i}.png").write_bytes(png((8, 8), 10 * i))
    found = OwnData(tmp_path).dataset
    assert found.class_names == ("ant", "bee")
    tested = len(found.test_labels)  # of what is there the first, else a part of train
    assert (len(found.train_labels), tested) == ((8, 8) if others else (8 - tested, tested))


def test_grey_of_16_bits_keeps_its_shades() -> None:
    shades = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    file = io.BytesIO()
    Image.fromarray(shades).save(file, "PNG")
    found = decoded(file.getvalue(), (1, 8, 8))[0]
    assert np.abs(found.astype(int) - shades // 257).max() <= 1 and found.max() == 255


def test_arrays_to_test_on_alone_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_test=np.zeros((4, 3)), y_test=np.arange(4))
    with pytest.raises(OcilError, match="nothing to train on"):
        OwnData(tmp_path / "a.npz").dataset


@pytest.mark.parametrize("names", [("a", "y"), ("x", "y")])
def test_a_column_label_is_the_label_beside_x_and_y(tmp_path: Path, names: tuple[str, str]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        names[0]: [0.1, 0.2, 0.3, 0.4],
        names[1]: [1.0, 2.0, 3.0, 4.0],
        "label": [0, 1, 0, 1],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    part = read_own(tmp_path / "t.parquet")["train"]
    assert part.labels == [0, 1, 0, 1]
    assert part.items[:, 1].tolist() == [1, 2, 3, 4]
