from __future__ import annotations

import json
import logging
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ocil.data import cache, load
from ocil.errors import OcilError


def only_entry(own_cache: Path) -> Path:
    (entry,) = [path for path in (own_cache / "decoded").iterdir() if path.is_dir()]
    return entry


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make any further decoding fail."""

    def forbid() -> None:
        monkeypatch.setattr("ocil.data.cache.chunks_of", lambda *_: 1 / 0)

    return forbid


def test_second_load_maps_what_the_first_decoded(
    make_batches: Callable[..., Path], no_decoding: Callable[[], None], own_cache: Path
) -> None:
    root = make_batches()
    first = load("cifar10", root)
    no_decoding()
    second = load("cifar10", root)
    for array in (second.train_images, second.test_images):
        assert isinstance(array, np.memmap)
        assert not array.flags.writeable
    assert second.known_fingerprint == first.fingerprint
    assert second.class_names == first.class_names
    for mine, other in zip(first.arrays, second.arrays, strict=True):
        np.testing.assert_array_equal(mine, other)
    facts = json.loads((only_entry(own_cache) / "entry.json").read_text())
    assert facts["arrays"]["train_images"]["shape"] == [65, 3, 32, 32]
    assert not list((own_cache / "decoded").glob("*.making"))


def test_an_entry_of_the_first_version_is_still_good(
    make_batches: Callable[..., Path], no_decoding: Callable[[], None], own_cache: Path
) -> None:
    """Whoever raises the version has all caches made again; change this test only then."""
    root = make_batches()
    load("cifar10", root)
    path = only_entry(own_cache) / "entry.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1}))
    no_decoding()
    assert isinstance(load("cifar10", root).train_images, np.memmap)


def test_stored_fingerprint_is_that_of_the_arrays(make_batches: Callable[..., Path]) -> None:
    from ocil.data.dataset import fingerprint

    dataset = load("cifar10", make_batches())
    assert dataset.known_fingerprint == fingerprint(dataset.arrays)


def test_changed_source_gives_another_entry(
    make_batches: Callable[..., Path], batch: Callable[..., bytes]
) -> None:
    first = load("cifar10", make_batches())
    root = make_batches(test_batch=batch(12))
    assert len(load("cifar10", root).test_images) == 12
    assert len(first.test_images) == 10
    path = root / "cifar10" / "cifar-10-batches-py" / "test_batch"
    before = cache.entry_folder(*found(root))
    os.utime(path, ns=(1, 1))
    assert cache.entry_folder(*found(root)) != before


def found(root: Path) -> tuple:
    from ocil.data.find import require
    from ocil.data.sources import named

    return named("cifar10"), require(named("cifar10"), root)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def other_shape(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data.replace(b"(65, 3, 32, 32)", b"(65, 3, 16, 64)"))


def other_value(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(bytes(data))


class _Runs:
    def __reduce__(self) -> tuple:
        return print, ("RUN BY A PICKLE",)


def pickled(path: Path) -> None:
    size = path.stat().st_size
    with path.open("wb") as stream:
        np.save(stream, np.array([_Runs()], object), allow_pickle=True)
        assert stream.tell() <= size
        stream.write(b"\0" * (size - stream.tell()))


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("train_images.npy", cut),
        ("train_images.npy", grown),
        ("train_images.npy", other_shape),
        ("train_images.npy", pickled),
        ("train_labels.npy", pickled),
        ("train_labels.npy", other_value),
        ("test_images.npy", Path.unlink),
        ("entry.json", cut),
        ("entry.json", Path.unlink),
        ("entry.json", lambda path: path.write_text('{"version": 0}')),
        ("entry.json", lambda path: path.write_text("[]")),
        ("entry.json", lambda path: path.write_bytes(b"\xff\xfe")),
    ],
)
def test_damaged_entry_is_made_again(
    make_batches: Callable[..., Path],
    own_cache: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    name: str,
    harm: Callable[[Path], None],
) -> None:
    root = make_batches()
    first = load("cifar10", root)
    known = first.fingerprint
    harm(only_entry(own_cache) / name)
    again = load("cifar10", root)
    assert "damaged" in caplog.text
    assert "RUN BY" not in capsys.readouterr().out
    assert again.fingerprint == known
    assert isinstance(again.train_images, np.memmap)
    caplog.clear()
    load("cifar10", root)
    assert not caplog.text


def test_leftovers_of_a_killed_process(make_batches: Callable[..., Path], own_cache: Path) -> None:
    root = make_batches()
    entry = cache.entry_folder(*found(root))
    making = entry.with_name(entry.name + ".making")
    making.mkdir(parents=True)
    (making / "train_images.npy").write_bytes(b"half")
    assert isinstance(load("cifar10", root).train_images, np.memmap)
    assert not making.exists()


def test_unwritable_cache_falls_back_to_memory(
    make_batches: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = make_batches()
    known = load("cifar10", root).fingerprint
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with caplog.at_level(logging.WARNING):
        dataset = load("cifar10", root)
    assert "kept in memory" in caplog.text
    assert "XDG_CACHE_HOME" in caplog.text
    assert not isinstance(dataset.train_images, np.memmap)
    assert dataset.fingerprint == known


def test_full_disk_falls_back_to_memory(
    make_batches: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    own_cache: Path,
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ocil.data.cache.os.fsync", full)
    dataset = load("cifar10", make_batches())
    assert "No space left" in caplog.text
    assert len(dataset.train_images) == 65
    assert not [path for path in (own_cache / "decoded").iterdir() if path.is_dir()]


def test_a_bad_source_leaves_no_entry(make_batches: Callable[..., Path], own_cache: Path) -> None:
    with pytest.raises(OcilError, match="test_batch"):
        load("cifar10", make_batches(test_batch=b"nothing"))
    assert not [path for path in (own_cache / "decoded").iterdir() if path.is_dir()]


def _load_in_process(root: Path, queue: multiprocessing.Queue) -> None:
    queue.put(load("cifar10", root).known_fingerprint)


def test_two_processes_at_once(make_batches: Callable[..., Path]) -> None:
    root = make_batches()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_load_in_process, args=(root, queue)) for _ in range(3)]
    for process in processes:
        process.start()
    results = {queue.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    assert results == {load("cifar10", root).fingerprint}
