from __future__ import annotations

import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil.data import load
from ocil.data.cifar import read_plain_pickle
from ocil.data.reader import Damage
from ocil.errors import OcilError


def expected_rows(count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    return rng.integers(0, 256, (count, 3072)).reshape(count, 3, 32, 32)


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_cifar10(make_batches: Callable[..., Path], form: str) -> None:
    dataset = load("cifar10", make_batches("cifar10", form))
    expected = np.concatenate([expected_rows(10 + i) for i in range(1, 6)])
    np.testing.assert_array_equal(dataset.train_images, expected)
    np.testing.assert_array_equal(dataset.test_images, expected_rows(10))
    np.testing.assert_array_equal(dataset.train_labels[:11], [*range(10), 0])
    assert dataset.class_names[3] == "cat"


@pytest.mark.parametrize("form", ["folder", "tar"])
def test_cifar100_has_fine_labels(make_batches: Callable[..., Path], form: str) -> None:
    dataset = load("cifar100", make_batches("cifar100", form))
    np.testing.assert_array_equal(dataset.train_images, expected_rows(200))
    np.testing.assert_array_equal(dataset.train_labels, np.arange(200) % 100)
    assert (len(dataset.class_names), dataset.class_names[99]) == (100, "worm")


def test_pickles_of_today_are_read_too(
    make_batches: Callable[..., Path], batch: Callable[..., bytes]
) -> None:
    dataset = load("cifar10", make_batches(test_batch=batch(10, old=False)))
    np.testing.assert_array_equal(dataset.test_images, expected_rows(10))


class Runs:
    """What a hostile pickle does: call something while it is read."""

    def __init__(self, *call: Any) -> None:
        self.call = call

    def __reduce__(self) -> Any:
        return self.call[0], self.call[1:]


def hostile(folder: Path) -> dict[str, bytes]:
    mark = str(folder / "mark")
    by_name = b"\x80\x02cos\nmkdir\nX" + len(mark).to_bytes(4, "little") + mark.encode() + b"\x85R."
    return {
        "reduce": pickle.dumps({"data": Runs(os.mkdir, mark)}),
        "old": pickle.dumps({"data": Runs(os.mkdir, mark)}, protocol=0),
        "eval": pickle.dumps({"data": Runs(eval, f"__import__('os').mkdir({mark!r})")}),
        "global": by_name,
        "inst": b"(S'" + mark.encode() + b"'\nios\nmkdir\n.",
        "other numpy": b"\x80\x02cnumpy\nload\n.",
        "dotted": b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__init__\x93.",
        "new object": b"\x80\x02cnumpy\nndarray\n)\x81.",
        "state for a name": b"\x80\x02cnumpy\nndarray\n}U\x01aK\x01sb.",
        "slots for a name": b"\x80\x02cnumpy\ndtype\nN}U\x08__call__K\x01s\x86b.",
        "memo bomb": b"\x80\x02}r\xff\xff\xff\x7f.",
        "persistent": b"\x80\x02Pmark\n.",
        "long bytes": b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x.",
        "truncated": pickle.dumps({"data": list(range(1000))})[:-5],
        "no dictionary": pickle.dumps([1, 2]),
        "empty": b"",
    }


@pytest.mark.parametrize("kind", list(hostile(Path())))
def test_hostile_pickles_run_nothing(
    make_batches: Callable[..., Path], one_sentence: Callable[..., None], tmp_path: Path, kind: str
) -> None:
    data = hostile(tmp_path)[kind]
    with pytest.raises(Damage):
        read_plain_pickle(data)
    for form in ("folder", "tar"):
        with pytest.raises(OcilError) as caught:
            load("cifar10", make_batches(form=form, data_batch_2=data))
        one_sentence(caught.value, "ocil data get cifar10")
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("inst", "opcode INST"),
        ("new object", "opcode NEWOBJ"),
        ("memo bomb", "memo index 2147483647"),
        ("reduce", r"asks for \w+\.mkdir"),
        ("state for a name", "given a state"),
        ("slots for a name", "given a state"),
    ],
)
def test_each_fence_does_its_part(tmp_path: Path, kind: str, message: str) -> None:
    with pytest.raises(Damage, match=message):
        read_plain_pickle(hostile(tmp_path)[kind])


def test_the_hostile_pickle_would_have_worked(tmp_path: Path) -> None:
    for kind in ("reduce", "old", "eval", "global", "inst"):
        pickle.loads(hostile(tmp_path)[kind])
        (tmp_path / "mark").rmdir()  # fails if the pickle did nothing: then it proves nothing


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0] * 9}, "9 labels for 10 images"),
        ({"labels": [*range(9), 10]}, r"label '10' is not an integer in 0..9"),
        ({"labels": [*range(9), 1.5]}, "label '1.5' is not"),
        ({"labels": [*range(9), True]}, "label 'True' is not"),
        ({"labels": "words"}, "no data and labels"),
        ({"data": [1, 2]}, "no data and labels"),
        ({"data": np.zeros((10, 3071), np.uint8)}, r"not \(n, 3072\)"),
        ({"data": np.zeros((10, 3072), np.float32)}, "not uint8"),
        ({"data": np.zeros((10, 3072), np.uint8, order="F")}, "C order"),
        ({"data": np.zeros((0, 3072), np.uint8), "labels": []}, "holds 0 images"),
        ({"data": np.zeros((10, 3, 1024), np.uint8)}, r"not \(n, 3072\)"),
    ],
)
def test_wrong_batches(
    make_batches: Callable[..., Path], batch: Callable[..., bytes], change: dict, message: str
) -> None:
    with pytest.raises(OcilError, match=message):
        load("cifar10", make_batches(test_batch=batch(10, **change)))


def test_a_missing_batch_is_named(make_batches: Callable[..., Path]) -> None:
    root = make_batches()
    (root / "cifar10" / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(OcilError, match="lacks data_batch_4;"):
        load("cifar10", root)


def test_truncated_archive(
    make_batches: Callable[..., Path], one_sentence: Callable[..., None]
) -> None:
    root = make_batches(form="tar")
    path = root / "cifar10" / "cifar-10-python.tar.gz"
    path.write_bytes(path.read_bytes()[:-50_000])
    with pytest.raises(OcilError) as caught:
        load("cifar10", root)
    one_sentence(caught.value, str(path), "ocil data get cifar10")


def archive_with(tmp_path: Path, *members: tarfile.TarInfo) -> Path:
    folder = tmp_path / "cifar10"
    folder.mkdir()
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"\0" * member.size))
    return tmp_path


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([member("x/data_batch_1", tarfile.SYMTYPE)], "is a link"),
        ([member("x/data_batch_1", tarfile.LNKTYPE)], "is a link"),
        ([member("x/pipe", tarfile.FIFOTYPE)], "is a link or a device"),
        ([member("x/../../data_batch_1")], "points outside"),
        ([member("/data_batch_1")], "points outside"),
        ([member(f"x/{i}") for i in range(200)], "more than 100 members"),
        ([member("x/data_batch_1", size=3_000_000)], "at most 1000000"),
        ([member(f"x/{i}", size=900_000) for i in range(9)], "unpacks to more than 2000000"),
        ([member("x/a\x1b[31m", tarfile.SYMTYPE)], r"a\\x1b\[31m is a link"),
        ([member("x/readme")], "it lacks data_batch_1"),
    ],
)
def test_hostile_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: list, message: str
) -> None:
    monkeypatch.setattr("ocil.data.archive.MAX_MEMBER_BYTES", 1_000_000)
    monkeypatch.setattr("ocil.data.archive.MAX_TAR_BYTES", 2_000_000)
    with pytest.raises(OcilError, match=message):
        load("cifar10", archive_with(tmp_path, *members))


@pytest.mark.parametrize(
    "opcode", [b"p2000000\n", b"r\x80\x84\x1e\x00"], ids=["PUT", "LONG_BINPUT"]
)
def test_a_memo_bomb_in_every_protocol(opcode: bytes) -> None:
    """An index of two million makes a table of 32 megabytes; nothing stops at that."""
    with pytest.raises(Damage, match="memo index 2000000 at byte 1"):
        read_plain_pickle(b"}" + opcode + b".")


def test_an_archive_whose_sum_is_wrong(make_batches: Callable[..., Path]) -> None:
    """tar has no sum over its content; that of gzip stands at the end."""
    root = make_batches(form="tar")
    path = root / "cifar10" / "cifar-10-python.tar.gz"
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(OcilError, match="CRC"):
        load("cifar10", root)
