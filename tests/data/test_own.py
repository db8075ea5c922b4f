"""Data of one's own: folders, arrays, tables; corrupt, huge and hostile ones."""

from __future__ import annotations

import io
import json
import os
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
    assert OwnData(folder).dataset.train_images.shape == (10, 3, 64, 64)  # of two sizes
    found = OwnData(folder, resize=8).dataset
    assert found.class_names == ("ant", "bee")
    assert found.train_images.shape == (10, 3, 8, 8)
    assert found.test_labels.tolist() == [0, 1]
    assert found.name == f"set-{found.fingerprint[:8]}"
    assert found.train_images[:, 0, 0, 0].tolist() == [0, 40, 80, 120, 200, 1, 41, 81, 121, 201]
    assert OwnData(folder, resize=9).dataset.name != found.name


def test_photographs_are_squares_of_64_pixels_without_being_told(tmp_path: Path) -> None:
    for i, side in enumerate(((400, 300), (300, 400), (80, 60))):
        (tmp_path / "all" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / "a" / f"{i}.png").write_bytes(png(side, 50 + i))
    assert read_own(tmp_path / "all")["train"].items.shape == (3, 3, 64, 64)
    (tmp_path / "all" / "a" / "2.png").unlink()
    (tmp_path / "all" / "a" / "1.png").write_bytes(png((400, 300)))
    assert read_own(tmp_path / "all")["train"].items.shape == (2, 3, 64, 64)  # of one large size
    assert read_own(tmp_path / "all", 100)["train"].items.shape == (2, 3, 100, 100)
    for i in range(2):
        (tmp_path / "all" / "a" / f"{i}.png").write_bytes(png((96, 80)))
    assert read_own(tmp_path / "all")["train"].items.shape == (2, 3, 80, 96)  # small: as they are


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


def arrays(path: Path, *names: str) -> Path:
    """Items where a name speaks of them, else labels; ten of each, told apart by their value."""
    items = {n: np.full((10, 3), float(i)) for i, n in enumerate(names) if n.lower() in ITEMS}
    labels = {n: np.arange(10) % 2 + 2 * i for i, n in enumerate(names) if n.lower() not in ITEMS}
    np.savez(path, **items, **labels)
    return path


ITEMS = ("x", "images", "x_train", "x_test", "x_val", "train_images", "test_images", "val_images")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("x_train", "y_train", "x", "y"), "x, x_train, y and y_train.*whole or in parts"),
        (("x_train", "x", "y"), "x, x_train and y.*whole or in parts"),
        (("x_train", "x_test", "y_test"), "x_train but no labels beside it"),
        (("x_train", "y_train", "x_test"), "x_test but no labels beside it"),
        (("x_train", "y_train", "y_test"), "y_test but no items beside it"),
        (("x", "images", "y"), "x and images could both be the items"),
        (("x", "y", "labels"), "y and labels could both be the labels"),
        (("x_train", "train_images", "y_train"), "x_train and train_images could both"),
        (("X", "x", "y"), "X and x could both be the items"),
    ],
)
def test_arrays_that_cannot_be_meant_are_refused(
    tmp_path: Path, names: tuple[str, ...], said: str
) -> None:
    with pytest.raises(OcilError, match=said):
        OwnData(arrays(tmp_path / "a.npz", *names)).dataset


@pytest.mark.parametrize(
    ("names", "taken", "said"),
    [
        (("x", "y"), (0, None), ""),
        (("x_train", "y_train", "x_test", "y_test"), (0, 2), ""),
        (("images", "labels", "weights"), (0, None), "not used: weights"),
        (
            ("train_images", "train_labels", "x_val", "y_val", "test_images", "test_labels"),
            (0, 4),
            "train is train_images and train_labels, test is test_images and test_labels; "
            "not used: x_val, y_val",
        ),
        (("x_train", "y_train", "x_val", "y_val"), (0, 2), "test is x_val and y_val"),
    ],
)  # fmt: skip
def test_what_is_taken_of_an_npz_is_said(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    names: tuple[str, ...],
    taken: tuple[int, int | None],
    said: str,
) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, **{n: np.full((10, 3), float(i)) if n in ITEMS else np.arange(10) % 2
                      for i, n in enumerate(names)})  # fmt: skip
    found = OwnData(path).dataset
    assert (found.train_images == taken[0]).all()
    if taken[1] is not None:
        assert (found.test_images == taken[1]).all()
    assert len(caplog.messages) == bool(said)
    assert said in caplog.text


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\0\0",
        b"(" * 400,
        b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }",
        b"{'descr': '<f4', 'fortran_order': 5, 'shape': (2,), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
    ],
)
def test_a_damaged_header_of_an_array(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "a.npz"
    body = b"\x93NUMPY\x01\0" + struct.pack("<H", len(header) + 1) + header + b"\n" + b"\0" * 8
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("x.npy", "y.npy"):
            archive.writestr(name, body)
    with pytest.raises(OcilError, match="cannot be used"):
        OwnData(path).dataset


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_a_camera_that_was_turned(tmp_path: Path, orientation: int) -> None:
    """Red left of green: what the camera held sideways comes out upright, also its size."""
    turned = {1: lambda p: p, 3: lambda p: p[::-1, ::-1], 6: np.rot90, 8: lambda p: np.rot90(p, 3)}
    upright = np.zeros((16, 32, 3), np.uint8)
    upright[:, :16, 0] = upright[:, 16:, 1] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    for label in ("ant", "bee"):
        (tmp_path / label).mkdir()
        for i in range(2):
            stored = np.ascontiguousarray(turned[orientation](upright))
            place = tmp_path / label / f"{i}.jpg"
            Image.fromarray(stored).save(place, "JPEG", quality=95, exif=exif)
    found = OwnData(tmp_path).dataset.train_images[0]
    assert found.shape == (3, 16, 32)
    assert found[0, 8, 8] > 200 > 60 > found[0, 8, 24]
    assert found[1, 8, 24] > 200 > 60 > found[1, 8, 8]


def test_offsets_of_a_saved_table_that_point_outside(tmp_path: Path) -> None:
    """pyarrow itself would read the memory beside the buffer."""
    save_to_disk(tmp_path / "one", table("embedding"))
    path = tmp_path / "one" / "data-00000-of-00001.arrow"
    data, offsets = path.read_bytes(), np.arange(0, 26, 2, dtype=np.int32).tobytes()
    assert data.count(offsets) == 1
    for wrong in (np.int32(2**30), np.int32(-(2**30))):
        path.write_bytes(data.replace(offsets, offsets[:-4] + wrong.tobytes()))
        with pytest.raises(OcilError, match="cannot be used"):
            OwnData(tmp_path / "one").dataset


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_no_file_to_read(tmp_path: Path, folder: Path, within_seconds: None) -> None:
    os.mkfifo(tmp_path / "a.npz")
    with pytest.raises(OcilError, match="no regular file"):
        OwnData(tmp_path / "a.npz").dataset
    os.mkfifo(folder / "ant" / "9.png")
    with pytest.raises(OcilError, match=r"9\.png.* no regular file"):
        OwnData(folder, resize=8).dataset
