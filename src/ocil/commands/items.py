"""Files that a command is given, as items of a model."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ocil.data.arrays import read_items
from ocil.data.pictures import ENDINGS, MAX_FILE_BYTES, Bad, decode_all
from ocil.data.reader import reading
from ocil.errors import OcilError
from ocil.files import read_plain

if TYPE_CHECKING:
    from ocil.classifier import Classifier

ARRAYS = (".npy", ".npz")


def picture_shape(model: Classifier) -> Any:
    """(C, H, W) for a model of uint8 pictures or with a backbone of pictures, else None."""
    if front := model._front():
        return front.encoder.shape
    form = model._learned.form if model._learned else None
    return form.shape if form and len(form.shape) == 3 and form.dtype == "uint8" else None


def find_files(given: Sequence[Path]) -> list[Path]:
    """Files, those below folders, and those that patterns such as new/*.jpg stand for."""
    if not given:
        raise OcilError("Name the files: pictures, folders of pictures, or .npy and .npz arrays.")
    found: list[Path] = []
    for path in given:
        inside = [path]
        if path.is_dir():
            inside = [path / file for file in sorted(_pictures_below(path))]
        elif not path.exists() and glob.has_magic(str(path)):
            inside = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]
        if not inside:
            raise OcilError(f"{path} stands for no picture; check the name.")
        found += inside
    return found


def _pictures_below(folder: Path) -> Iterator[Path]:
    """Named from the folder on; hidden ones are passed over."""
    for file in folder.rglob("*"):
        name = file.relative_to(folder)
        hidden = any(part.startswith(".") for part in name.parts)
        if file.suffix.lower() in ENDINGS and file.is_file() and not hidden:
            yield name


def read_files(
    model: Classifier, given: Sequence[Path], bad: Bad = "fail"
) -> tuple[np.ndarray, list[str]]:
    """Items (n, ...) and their names: pictures first, then the rows of arrays."""
    files = find_files(given)
    arrays = [file for file in files if file.suffix.lower() in ARRAYS]
    pictures = [file for file in files if file not in arrays]
    found: list[np.ndarray] = []
    names: list[str] = []
    if pictures:
        x, kept = _pictures(model, pictures, bad)
        found, names = [x], [str(pictures[i]) for i in kept]
    for file in arrays:
        with reading(file):
            found.append(read_items(file))
        names += [f"{file}[{i}]" for i in range(len(found[-1]))]
    if len({x.shape[1:] for x in found}) > 1:
        from ocil import samples

        found = [samples.items(x, "auto") for x in found]  # channels first, as pictures are
    if len({x.shape[1:] for x in found}) > 1:
        raise OcilError("The files hold items of several shapes; name those of one shape.")
    return np.concatenate(found), names


def _pictures(model: Classifier, files: list[Path], bad: Bad) -> tuple[np.ndarray, list[int]]:
    shape = picture_shape(model)
    if shape is None:
        raise OcilError(
            f"The model learned {model._fitted().form}, no pictures of uint8; give .npy or .npz."
        )

    def read(i: int) -> bytes:
        return read_plain(files[i], MAX_FILE_BYTES)

    return decode_all([str(file) for file in files], read, None, bad, shape)
