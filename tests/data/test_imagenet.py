from __future__ import annotations

import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ocil.data import load
from ocil.errors import OcilError

FIRST = "train/n00000000/images/n00000000_0.JPEG"


def test_folder_and_zip_give_the_same(make_tiny: Callable[..., Path]) -> None:
    folder = load("tiny-imagenet", make_tiny("folder", 3))
    zipped = load("tiny-imagenet", make_tiny("zip", 3))
    assert folder.fingerprint == zipped.fingerprint
    assert folder.class_names == zipped.class_names == ("cat 0", "cat 1", "cat 2")
    assert folder.train_images.shape == (9, 3, 64, 64)
    # labels follow the sorted ids although wnids.txt lists them in another order
    np.testing.assert_array_equal(folder.train_labels, [0, 0, 0, 1, 1, 1, 2, 2, 2])
    levels = folder.train_images[:, :, 5, 5]  # grey images have become RGB
    assert levels.tolist() == [[v] * 3 for v in (0, 1, 2, 10, 11, 12, 20, 21, 22)]
    np.testing.assert_array_equal(folder.test_labels, [0, 1, 2])
    np.testing.assert_array_equal(folder.test_images[:, 0, 0, 0], [2, 12, 22])


def test_classes_without_lists(make_tiny: Callable[..., Path]) -> None:
    root = make_tiny("zip", 2, {"wnids.txt": None, "words.txt": None})
    assert load("tiny-imagenet", root).class_names == ("n00000000", "n00000001")


def test_two_classes_never_share_a_name(make_tiny: Callable[..., Path]) -> None:
    words = b"n00000000\tcrane, bird\nn00000001\tcrane\nn99999999\tcat\n"
    dataset = load("tiny-imagenet", make_tiny("zip", 2, {"words.txt": words}))
    assert dataset.class_names == ("crane (n00000000)", "crane (n00000001)")


def test_names_cannot_drive_the_terminal(make_tiny: Callable[..., Path]) -> None:
    words = b"n00000000\t\x1b]0;owned\x07cat\nn00000001\t" + b"x" * 5000
    first, second = load("tiny-imagenet", make_tiny("zip", 2, {"words.txt": words})).class_names
    assert first == r"\x1b]0;owned\x07cat"
    assert len(second) == 60


def test_a_cut_leaves_other_classes_out(make_tiny: Callable[..., Path]) -> None:
    dataset = load("tiny-imagenet", make_tiny("zip", 3, {"wnids.txt": b"n00000000\nn00000002"}))
    assert (len(dataset.train_images), len(dataset.test_images)) == (6, 2)
    assert dataset.class_names == ("cat 0", "cat 2")


@pytest.mark.parametrize("form", ["folder", "zip"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({FIRST: b"no image"}, "n00000000_0.JPEG is an image of 8 bytes that cannot"),
        ({FIRST: b"\xff\xd8\xff" * (1 << 20)}, "larger than 1048576 bytes"),
        ({"val/images/val_1.JPEG": None}, "val_1.JPEG is listed but not there"),
        ({"val/val_annotations.txt": b"val_0.JPEG"}, "has no class id"),
        ({"wnids.txt": b"\n"}, "lists 0 classes"),
        ({"wnids.txt": "\n".join(map(str, range(201))).encode()}, "201 classes, expected 1 to 200"),
    ],
)
def test_wrong_content(
    make_tiny: Callable[..., Path],
    one_sentence: Callable[..., None],
    form: str,
    changes: dict,
    message: str,
) -> None:
    with pytest.raises(OcilError, match=message) as caught:
        load("tiny-imagenet", make_tiny(form, 2, changes))
    one_sentence(caught.value, "tiny-imagenet", "ocil data get tiny-imagenet")


@pytest.mark.parametrize("size", [(63, 64), (65, 64), (20_000, 20_000)])
def test_image_size_is_checked_before_decoding(
    make_tiny: Callable[..., Path], image: Callable[..., bytes], size: tuple[int, int]
) -> None:
    data = bytearray(image(np.zeros((64, 64, 3), np.uint8)))
    data[16:24] = struct.pack(">II", *size)  # a PNG that only announces its size
    data[29:33] = struct.pack(">I", __import__("zlib").crc32(data[12:29]))
    pixels = f"{size[0]}x{size[1]} pixels, expected 64x64"
    message = pixels if size[0] < 20_000 else "cannot be decoded"  # Pillow has a limit of its own
    with pytest.raises(OcilError, match=message):
        load("tiny-imagenet", make_tiny("zip", 2, {FIRST: bytes(data)}))


def test_truncated_jpeg(make_tiny: Callable[..., Path], image: Callable[..., bytes]) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    data = image(noise, "JPEG")[:-1000]
    with pytest.raises(OcilError, match="cannot be decoded"):
        load("tiny-imagenet", make_tiny("folder", 2, {FIRST: data}))


def test_links_in_a_folder_are_refused(make_tiny: Callable[..., Path]) -> None:
    root = make_tiny("folder")
    path = root / "tiny-imagenet" / FIRST
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(OcilError, match=r"n00000000_0.JPEG in it is a link"):
        load("tiny-imagenet", root)


def add(root: Path, name: str, mode: int = 0, method: int = zipfile.ZIP_STORED) -> Path:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    with zipfile.ZipFile(root / "tiny-imagenet" / "tiny-imagenet-200.zip", "a") as archive:
        archive.writestr(info, b"x" * 100, compress_type=method)
    return root


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (("tiny-imagenet-200/../../evil",), "points outside"),
        (("/evil",), "points outside"),
        (("a\\b",), "points outside"),
        (("link", stat.S_IFLNK | 0o777), "link is a link"),
        (("odd", 0, zipfile.ZIP_LZMA), "packed with method 14"),
        (("other/val/val_annotations.txt",), "holds 2 files"),
    ],
)
def test_hostile_zip(make_tiny: Callable[..., Path], member: tuple, message: str) -> None:
    with pytest.raises(OcilError, match=message):
        load("tiny-imagenet", add(make_tiny("zip"), *member))


def test_zip_limits(make_tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_tiny("zip")
    with monkeypatch.context() as patch:
        patch.setattr("ocil.data.archive.MAX_FILES", 5)
        with pytest.raises(OcilError, match="11 members, at most 5"):
            load("tiny-imagenet", root)
    with monkeypatch.context() as patch:
        patch.setattr("ocil.data.archive.MAX_BYTES", 1000)
        with pytest.raises(OcilError, match="at most 1000 are read"):
            load("tiny-imagenet", root)
    with monkeypatch.context() as patch:
        patch.setattr("ocil.data.archive.MAX_FILES", 5)
        with pytest.raises(OcilError, match="more than 5 files"):
            load("tiny-imagenet", make_tiny("folder"))


def test_encrypted_member(make_tiny: Callable[..., Path]) -> None:
    root = make_tiny("zip")
    path = root / "tiny-imagenet" / "tiny-imagenet-200.zip"
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 8] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(OcilError, match=r"member tiny-imagenet-200/wnids.txt is encrypted"):
        load("tiny-imagenet", root)


def test_truncated_zip(make_tiny: Callable[..., Path], one_sentence: Callable[..., None]) -> None:
    root = make_tiny("zip")
    path = root / "tiny-imagenet" / "tiny-imagenet-200.zip"
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(OcilError) as caught:
        load("tiny-imagenet", root)
    one_sentence(caught.value, str(path), "ocil data get tiny-imagenet")


def test_changed_bytes_in_a_zip(make_tiny: Callable[..., Path]) -> None:
    root = make_tiny("zip")
    path = root / "tiny-imagenet" / "tiny-imagenet-200.zip"
    data = bytearray(path.read_bytes())
    data[data.index(b"JFIF") + 40] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(OcilError, match="CRC"):
        load("tiny-imagenet", root)


def test_a_member_without_a_name_and_a_part_without_images(
    make_tiny: Callable[..., Path], one_sentence: Callable[..., None]
) -> None:
    root = make_tiny("zip")
    path = root / "tiny-imagenet" / "tiny-imagenet-200.zip"
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        name = archive.namelist()[0].encode()
    at = data.rindex(name) - 46  # the entry of the central directory begins so far before its name
    assert data[at : at + 4] == b"PK\x01\x02"
    path.write_bytes(data[: at + 28] + b"\0\0" + data[at + 30 :])
    with pytest.raises(OcilError) as caught:
        load("tiny-imagenet", root)
    one_sentence(caught.value, str(path))
    path.write_bytes(data.replace(b"train/", b"tr_in/"))
    with pytest.raises(OcilError, match="train holds 0 images"):
        load("tiny-imagenet", root)
