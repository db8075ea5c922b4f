"""Small promises of the readers: what is named, what is refused, what cannot be written to."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ocil import data
from ocil.commands.data import overview
from ocil.data import archive, arrays, cache, cifar, download, imagenet, own, pictures
from ocil.data.check import check
from ocil.data.find import Found
from ocil.data.reader import Damage
from ocil.data.sources import SOURCES, SourceFile
from ocil.errors import OcilError


def png(side: tuple[int, int] = (8, 8), mode: str = "RGB") -> bytes:
    from PIL import Image

    stream = io.BytesIO()
    Image.new(mode, side).save(stream, "PNG")
    return stream.getvalue()


class Names(archive.FolderTree):
    """Names of files that nobody reads."""

    def __init__(self, *names: str) -> None:
        self.held = [*names, "val/val_annotations.txt"]

    def names(self) -> list[str]:
        return self.held


def test_a_check_names_the_file_that_is_not_the_published_one(
    make_batches: Callable[..., Path],
) -> None:
    report = check("cifar10", make_batches(form="tar"))
    wrong = {finding.what: finding.detail for finding in report.findings if finding.ok is False}
    assert "expected 170498071" in wrong["cifar-10-python.tar.gz"]


def test_the_list_has_a_heading_for_every_number() -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=200)
    console.print(overview())
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].startswith("Data sets")
    headings = [cell.strip() for cell in lines[2].split("┃")[1:-1]]
    cells = [cell.strip() for cell in lines[5].split("│")[1:-1]]
    assert headings[:4] == ["name", "classes", "images", "download"]
    assert cells[:4] == ["mnist", "10", "70000", "11.6 MB"]


def test_nothing_can_be_written_to_a_data_set(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((8, 2), np.float32), y=np.arange(8) % 2)
    parts = [np.zeros((2, 1, 4, 4), np.uint8), np.arange(2)] * 2
    made = data.Dataset("made", *(array.copy() for array in parts), ("a", "b")).checked()
    for dataset in (made, data.load("digits"), own.OwnData(tmp_path / "a.npz").dataset):
        assert not any(array.flags.writeable for array in dataset.arrays)


def test_pictures_to_test_on_take_the_size_of_those_to_learn(tmp_path: Path) -> None:
    for name, side in (("train/a/1", 8), ("train/b/1", 8), ("test/a/1", 6), ("test/b/1", 6)):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png((side, side)))
    parts = own.read_own(tmp_path)
    assert parts["train"].items.shape == parts["test"].items.shape == (2, 3, 8, 8)


def test_no_picture_at_all_is_refused_also_where_bad_ones_are_passed_over() -> None:
    with pytest.raises(OcilError, match="None of 2 pictures"):
        pictures.decode_all(["a", "b"], lambda i: b"no picture", bad="skip")


def test_pictures_may_take_as_many_bytes_as_are_held_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pictures, "MAX_BYTES", 2 * 8 * 8)
    grey = png(mode="L")
    found, _ = pictures.decode_all(["a", "b"], lambda i: grey)
    assert found.shape == (2, 1, 8, 8)
    with pytest.raises(OcilError, match="3 pictures of 8x8 pixels take 192 bytes, at most 128"):
        pictures.decode_all(["a", "b", "c"], lambda i: grey)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_of_a_turned_photograph_is_the_one_it_is_seen_with(orientation: int) -> None:
    from PIL import Image

    stream, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (6, 4)).save(stream, "JPEG", exif=exif)
    images, _ = pictures.decode_all(["photo"], lambda i: stream.getvalue())
    assert images.shape[2:] == ((6, 4) if orientation > 4 else (4, 6))


def test_the_name_of_a_class_without_words_is_its_id_cut_at_60_letters() -> None:
    layout = imagenet._Layout(Names(*(f"train/{n}/images/a.png" for n in ("n" * 80, "short"))))
    long, short = layout.class_names()
    assert len(long) == 60 and long.startswith("nnn") and short == "short"


def test_the_order_within_an_archive_plays_no_part(make_batches: Callable[..., Path]) -> None:
    root = make_batches()
    folder = root / "cifar10" / "cifar-10-batches-py"
    wanted = data.load("cifar10", root)
    other = root / "other" / "cifar10"
    other.mkdir(parents=True)
    with tarfile.open(other / "cifar-10-python.tar.gz", "w:gz") as archive:
        for path in sorted(folder.iterdir(), reverse=True):
            archive.add(path, f"cifar-10-batches-py/{path.name}")
    found = data.load("cifar10", root / "other")
    np.testing.assert_array_equal(found.train_labels, wanted.train_labels)
    np.testing.assert_array_equal(found.train_images, wanted.train_images)


def test_every_file_of_a_folder_decides_which_cache_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    found = Found("folder", tmp_path, {"train": tmp_path / "images"})
    for name in "abc":
        (tmp_path / "images" / name).write_bytes(b"1")
    keys = {cache.entry_folder(SOURCES["tiny-imagenet"], found)}
    for name in "abc":
        (tmp_path / "images" / name).write_bytes(b"22")
        keys.add(cache.entry_folder(SOURCES["tiny-imagenet"], found))
    assert len(keys) == 4


def test_a_cache_of_another_version_is_not_read(tmp_path: Path) -> None:
    facts = {"version": cache.VERSION, "more": 1}
    (tmp_path / cache._FACTS).write_text(json.dumps(facts))
    assert cache.read_facts(tmp_path) == facts
    (tmp_path / cache._FACTS).write_text(json.dumps(facts | {"version": cache.VERSION + 1}))
    with pytest.raises(ValueError, match="version"):
        cache.read_facts(tmp_path)


def test_train_and_test_of_two_number_types_are_refused(tmp_path: Path) -> None:
    x, y = np.zeros((4, 1, 8, 8), np.uint8), np.arange(4) % 2
    np.savez(tmp_path / "a.npz", x_train=x, y_train=y, x_test=x / np.float32(255), y_test=y)
    with pytest.raises(OcilError, match="train and test differ"):
        own.OwnData(tmp_path / "a.npz", None, "fail").dataset


def test_grey_numbers_above_255_are_16_bits() -> None:
    from PIL import Image

    small = Image.fromarray(np.array([[0, 255]], np.int32))
    large = Image.fromarray(np.array([[0, 256]], np.int32))
    assert np.asarray(pictures._eight_bits(small)).tolist() == [[0, 255]]
    assert np.asarray(pictures._eight_bits(large)).tolist() == [[0, 0]]  # 256 of 65 535


@pytest.mark.parametrize("held", [b"four", b"sixsix"])
def test_a_member_has_the_size_it_announces(held: bytes) -> None:
    class Archive:
        def open(self, member: zipfile.ZipInfo) -> io.BytesIO:
            return io.BytesIO(held)

    member = zipfile.ZipInfo("a.png")
    member.file_size = 5
    with pytest.raises(Damage, match="announced size"):
        archive.read_member(Archive(), member)  # type: ignore[arg-type]


def test_a_folder_may_have_every_part(tmp_path: Path) -> None:
    for part in ("train", *arrays.TESTS):
        for label in ("cat", "dog"):
            folder = tmp_path / part / label
            folder.mkdir(parents=True)
            (folder / "a.png").write_bytes(png())
    parts = own.read_own(tmp_path, None, "fail")
    assert sorted(set(parts["train"].labels)) == ["cat", "dog"]
    assert len(parts["test"].labels) == 2  # of several parts to test on the first


@pytest.mark.parametrize("change", [{"shape": [4, 1]}, {"dtype": "<i4"}])
def test_a_cached_array_is_of_the_noted_shape_and_type(tmp_path: Path, change: dict) -> None:
    labels = np.arange(4)
    np.save(tmp_path / "train_labels.npy", labels)
    facts = {
        "bytes": (tmp_path / "train_labels.npy").stat().st_size,
        "shape": [4],
        "dtype": labels.dtype.str,
        "sha256": cache.array_sha256(labels),
    }
    assert cache._open_array(tmp_path, "train_labels", facts).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="train_labels is"):
        cache._open_array(tmp_path, "train_labels", facts | change)


def test_pictures_are_in_order_of_their_class_first() -> None:
    names = ("train/b/images/x.JPEG", "train/a/images/y.JPEG", "train/a/images/z.JPEG")
    layout = imagenet._Layout(Names(*names))
    layout.ids = {"b": 0, "a": 1}
    found = layout.train_items()
    assert [label for _, label in found] == [0, 1, 1]
    assert [name[-6:] for name, _ in found] == ["x.JPEG", "y.JPEG", "z.JPEG"]


def test_labels_are_in_the_order_of_the_ids_of_the_classes() -> None:
    ids = [f"n{i:02d}" for i in range(50)]
    layout = imagenet._Layout(Names(*(f"train/{i}/images/x.JPEG" for i in reversed(ids))))
    assert layout.ids == {name: label for label, name in enumerate(ids)}


def test_rows_and_columns_of_a_picture_keep_their_places() -> None:
    from PIL import Image

    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)  # (H, W, C)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    found = pictures.decode_exact(stream.getvalue(), (3, 2, 3), "a picture")
    assert np.array_equal(found, pixels.transpose(2, 0, 1))


def test_a_batch_of_no_images_is_damaged(batch: Callable[..., bytes]) -> None:
    empty = batch(0, data=np.zeros((0, 3072), np.uint8), labels=[])
    with pytest.raises(Damage, match="it holds 0 images, expected 1 to 10"):
        cifar._read_batch(SOURCES["cifar10"], empty, 10)


def test_no_more_is_taken_from_a_server_than_the_file_has() -> None:
    file = SourceFile("a", ("http://a",), 10, md5="0" * 32)
    stream = io.BytesIO()
    transfer = download._Transfer(file, Path("a"), None, 1.0)
    transfer._copy(io.BytesIO(bytes(1000)), stream, 4)
    assert len(stream.getvalue()) == 6


def test_what_a_mac_adds_to_a_folder_is_no_class(tmp_path: Path) -> None:
    for name in ("cat/1", "cat/2", "dog/1", "dog/2", "__MACOSX/cat/1", ".cache/1"):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png())
    assert own.read_own(tmp_path)["train"].labels == ["cat", "cat", "dog", "dog"]


@pytest.mark.parametrize("readable", [True, False])
def test_a_check_of_a_file_that_is_packed_otherwise_asks_for_its_content(
    make_idx: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, readable: bool
) -> None:
    one = SOURCES["mnist"].files[0].unpacked_md5
    monkeypatch.setattr("ocil.data.check._unpacked_md5", lambda _: one if readable else None)
    found = {f.what: f for f in check("mnist", make_idx()).findings if "ubyte" in f.what}
    same = {name for name, finding in found.items() if finding.ok}
    assert len(same) == readable
    assert all("content as published" in found[name].detail for name in same)
    assert all(("not readable" in f.detail) == (not readable) for f in found.values())


def test_an_archive_may_unpack_to_the_limit_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_TAR_BYTES", 10)
    assert archive._Limited(io.BytesIO(bytes(10))).read() == bytes(10)
    with pytest.raises(Damage, match="more than 10 bytes"):
        archive._Limited(io.BytesIO(bytes(11))).read()


def test_a_pickle_of_a_list_is_no_batch() -> None:
    with pytest.raises(Damage, match="it is not a dictionary"):
        cifar.read_plain_pickle(pickle.dumps([1, 2]))
