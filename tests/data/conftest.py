"""Small stand-ins for the real files, and a cache folder of its own for every test."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

_REAL = os.environ.get("OCIL_DATA", "")
IDX = {
    "train-images-idx3-ubyte": (20, 28, 28),
    "train-labels-idx1-ubyte": (20,),
    "t10k-images-idx3-ubyte": (10, 28, 28),
    "t10k-labels-idx1-ubyte": (10,),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's folders out of the tests."""
    monkeypatch.delenv("OCIL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ocil"


@pytest.fixture
def real_data() -> Callable[[str], Path]:
    """Return the folder of real data; skip where the named set is not there."""

    def root(name: str) -> Path:
        if not _REAL or not (Path(_REAL) / name).is_dir():
            pytest.skip(f"no {name} in $OCIL_DATA")
        return Path(_REAL)

    return root


def idx_bytes(array: np.ndarray) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return head + array.astype(np.uint8).tobytes()


@pytest.fixture
def idx() -> Callable[[np.ndarray], bytes]:
    """Return the writer of IDX bytes."""
    return idx_bytes


@pytest.fixture
def make_idx(tmp_path: Path) -> Callable[..., Path]:
    """Write four IDX files into tmp_path/NAME and return tmp_path."""

    def make(name: str = "mnist", zipped: bool = True, ending: str | None = None) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        rng = np.random.default_rng(0)
        for base, shape in IDX.items():
            is_images = len(shape) == 3
            array = rng.integers(0, 256, shape) if is_images else np.arange(shape[0]) % 10
            data = idx_bytes(array)
            end = (".gz" if zipped else "") if ending is None else ending
            (folder / f"{base}{end}").write_bytes(gzip.compress(data) if zipped else data)
        return tmp_path

    return make


class _Python2Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Write text and bytes as Python 2 wrote its strings: the form of the original batches."""

    dispatch: ClassVar[dict] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def _save_string(self, value: Any) -> None:
        data = value.encode() if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)  # type: ignore[attr-defined]

    dispatch[str] = _save_string
    dispatch[bytes] = _save_string


def cifar_batch(
    count: int, classes: int = 10, key: str = "labels", old: bool = True, **more: Any
) -> bytes:
    """Return one pickled batch, in the form of Python 2 and old numpy or in today's."""
    rng = np.random.default_rng(count)
    content = {
        "batch_label": "a batch",
        key: [i % classes for i in range(count)],
        "data": rng.integers(0, 256, (count, 3072)).astype(np.uint8),
        "filenames": [f"{i}.png" for i in range(count)],
        **more,
    }
    if not old:
        return pickle.dumps(content, protocol=4)
    stream = io.BytesIO()
    _Python2Pickler(stream, protocol=2).dump(content)
    return stream.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


@pytest.fixture
def batch() -> Callable[..., bytes]:
    """Return the writer of one batch."""
    return cifar_batch


@pytest.fixture
def make_batches(tmp_path: Path) -> Callable[..., Path]:
    """Write CIFAR batches as a folder or an archive below tmp_path/NAME; return tmp_path."""

    def make(name: str = "cifar10", form: str = "folder", **files: bytes) -> Path:
        if name == "cifar10":
            inner, members = "cifar-10-batches-py", {"test_batch": cifar_batch(10)}
            members |= {f"data_batch_{i}": cifar_batch(10 + i) for i in range(1, 6)}
        else:
            inner = "cifar-100-python"
            members = {
                "train": cifar_batch(200, 100, "fine_labels", coarse_labels=[0] * 200),
                "test": cifar_batch(100, 100, "fine_labels", coarse_labels=[0] * 100),
            }
        members |= files
        folder = tmp_path / name
        (folder / inner if form == "folder" else folder).mkdir(parents=True, exist_ok=True)
        if form == "folder":
            for member, data in members.items():
                (folder / inner / member).write_bytes(data)
            return tmp_path
        archive_name = inner.replace("-batches-py", "-python") + ".tar.gz"
        with tarfile.open(folder / archive_name, "w:gz") as archive:
            for member, data in members.items():
                info = tarfile.TarInfo(f"{inner}/{member}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return tmp_path

    return make


def encoded(pixels: np.ndarray, form: str = "PNG", **options: Any) -> bytes:
    """Return an image file of uint8 (H, W, 3) or (H, W)."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form, **options)
    return stream.getvalue()


@pytest.fixture
def image() -> Callable[..., bytes]:
    """Return the writer of one image."""
    return encoded


@pytest.fixture
def make_tiny(tmp_path: Path) -> Callable[..., Path]:
    """Write the layout of Tiny-ImageNet, as a folder or a zip, below tmp_path/FORM."""

    def make(
        form: str = "folder", classes: int = 2, changes: dict[str, bytes | None] | None = None
    ) -> Path:
        ids = [f"n{i:08d}" for i in range(classes)][::-1]
        files: dict[str, bytes] = {"wnids.txt": "\n".join(ids).encode()}
        files["words.txt"] = "\n".join(f"{key}\tcat {key[-1]}, feline" for key in ids).encode()
        notes = []
        for label, key in enumerate(sorted(ids)):
            for i in range(3):
                pixels = np.full((64, 64, 3), 10 * label + i, np.uint8)
                pixels = pixels[..., 0] if i == 2 else pixels  # one grey image a class
                data = encoded(pixels, "JPEG", quality=95)
                files[f"train/{key}/images/{key}_{i}.JPEG"] = data
            files[f"val/images/val_{label}.JPEG"] = encoded(pixels, "JPEG", quality=95)
            notes.append(f"val_{label}.JPEG\t{key}\t0\t0\t63\t63")
        files["val/val_annotations.txt"] = "\n".join(notes).encode()
        changed = {**files, **(changes or {})}
        files = {name: data for name, data in changed.items() if data is not None}
        folder = tmp_path / form / "tiny-imagenet"
        folder.mkdir(parents=True, exist_ok=True)
        if form == "zip":
            with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as archive:
                for name, data in files.items():
                    archive.writestr(f"tiny-imagenet-200/{name}", data)
        else:
            for name, data in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
        return tmp_path / form

    return make


@pytest.fixture
def one_sentence() -> Callable[..., None]:
    """Check that an error is one line that names a file and what to do."""

    def check(error: BaseException, *parts: str) -> None:
        text = str(error)
        assert "\n" not in text
        assert text.endswith(".")
        for part in parts:
            assert part in text

    return check
