"""Arrays and tables of your own: .npz, .parquet, and a Hugging Face data set saved on disk.

Each reader gives raw items (an array, or compressed pictures row by row) and labels.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ocil.data.damage import Damage
from ocil.data.parquet import load_pyarrow
from ocil.data.source import printable

MOST_BYTES = 4 << 30  # unpacked
_ITEMS = ("x", "image", "images", "img", "data", "features", "embedding", "embeddings", "arr_0")
_LABELS = ("y", "label", "labels", "fine_label", "target", "class", "arr_1")
_JSON_BYTES = 16 << 20


class Raw(NamedTuple):
    """Items as an array (n, ...) or as compressed pictures, and a label for each."""

    items: np.ndarray | list[bytes]
    labels: list[int | str]


def read_npz(path: Path, labelled: bool = True) -> dict[str, Raw]:
    """Parts by name: train and test (x_train, y_train, ...), or all as train (x and y)."""
    with zipfile.ZipFile(path) as archive:
        members = {m.filename.removesuffix(".npy"): m for m in archive.infolist()}
        if sum(m.file_size for m in members.values()) > MOST_BYTES:
            raise Damage(f"it unpacks to more than {MOST_BYTES} bytes")
        lower = {name.lower(): name for name in members}
        parts = {}
        for part in ("train", "test"):
            x, y = _named(lower, _ITEMS, part), _named(lower, _LABELS, part)
            if x and y:
                parts[part] = Raw(_npy(archive, members[x]), _npy(archive, members[y]).tolist())
        if parts and "train" not in parts:
            raise Damage("it has a test part but nothing to train on (x_train and y_train)")
        if not parts:
            x, y = _named(lower, _ITEMS), _named(lower, _LABELS)
            if x and not labelled:
                return {"train": Raw(_npy(archive, members[x]), [])}
            if not x or not y:
                shown = printable(", ".join(members), 120)
                raise Damage(f"it has no arrays x and y (or x_train, y_train, ...), but {shown}")
            parts["train"] = Raw(_npy(archive, members[x]), _npy(archive, members[y]).tolist())
        return parts


def _named(known: dict[str, str], names: tuple[str, ...], part: str = "") -> str | None:
    """The first key there is of x, x_train or train_x for the names x."""
    forms = [f for n in names for f in ((f"{n}_{part}", f"{part}_{n}") if part else (n,))]
    return next((known[form] for form in forms if form in known), None)


def _npy(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Damage(f"it is packed with method {member.compress_type}")
    return npy(archive.read(member))


def npy(data: bytes) -> np.ndarray:
    """An array in numpy's format, its announced size compared with the bytes before it is made."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    reader = {(1, 0): np.lib.format.read_array_header_1_0}.get(
        version, np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = reader(stream)
    if dtype.hasobject:
        raise Damage("it holds Python objects, which are not read; save plain arrays")
    if (wanted := math.prod(shape) * dtype.itemsize) != len(data) - stream.tell():
        raise Damage(f"it announces {wanted} bytes and holds {len(data) - stream.tell()}")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)


def read_parquet(path: Path) -> dict[str, Raw]:
    """One table as train; a column of pictures, of lists of numbers, or numbers in columns."""
    pyarrow = load_pyarrow(path)
    with pyarrow.parquet.ParquetFile(path) as file:
        facts = file.metadata
        size = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        if size > MOST_BYTES:
            raise Damage(f"it unpacks to {size} bytes, at most {MOST_BYTES} are read")
        return {"train": _raw(pyarrow, _arrow(pyarrow, file.read))}


def read_saved(path: Path) -> dict[str, Raw]:
    """A Hugging Face data set saved with save_to_disk: its splits train and test, or all."""
    if not (path / "dataset_dict.json").is_file():
        return {"train": _split(path)}
    splits = _json(path / "dataset_dict.json")["splits"]
    test = next((s for s in ("test", "validation", "valid") if s in splits), None)
    if "train" not in splits:
        raise Damage("it has no split named train")
    parts = {"train": _split(path / "train")}
    return parts | ({"test": _split(path / test)} if test else {})


def _split(folder: Path) -> Raw:
    pyarrow = load_pyarrow(folder)
    names = [str(entry["filename"]) for entry in _json(folder / "state.json")["_data_files"]]
    tables = []
    for name in names:
        if Path(name).name != name or (folder / name).is_symlink():
            raise Damage(f"its file {printable(name)} is not one of its own folder")
        if (folder / name).stat().st_size > MOST_BYTES:
            raise Damage(f"{printable(name)} is larger than {MOST_BYTES} bytes")
        with pyarrow.memory_map(str(folder / name)) as source:
            tables.append(_arrow(pyarrow, lambda s=source: pyarrow.ipc.open_stream(s).read_all()))
    return _raw(pyarrow, pyarrow.concat_tables(tables))


def _json(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        return json.loads(stream.read(_JSON_BYTES))


def _arrow(pyarrow: Any, read: Any) -> Any:
    try:
        return read()
    except pyarrow.lib.ArrowException as error:
        raise Damage(f"its table cannot be read ({str(error).splitlines()[0]})") from error


def _raw(pyarrow: Any, table: Any) -> Raw:
    lower = {name.lower(): name for name in table.column_names}
    label = _named(lower, ("label", *_LABELS))  # where there is one, y may be a coordinate
    if label is None:
        raise Damage(f"it has no column {', '.join(_LABELS[:-1])}")
    labels = _class_names(table, label)
    name = _named(lower, _ITEMS)
    simple = name is not None and pyarrow.types.is_primitive(table[name].type)
    if name is None or (name.lower() == "x" and simple):
        rest = [n for n in table.column_names if n != label]
        return Raw(np.stack([table[n].to_numpy() for n in rest], 1), labels)
    column = table[name].combine_chunks()
    if pyarrow.types.is_struct(column.type):
        column = column.field("bytes")
    if pyarrow.types.is_binary(column.type) or pyarrow.types.is_large_binary(column.type):
        return Raw([item or b"" for item in column.to_pylist()], labels)
    if pyarrow.types.is_nested(column.type):
        return Raw(np.array(column.to_pylist()), labels)
    raise Damage(f"its column {printable(name)} holds {column.type}, no pictures and no vectors")


def _class_names(table: Any, label: str) -> list[int | str]:
    """The labels; by their names where the table carries those of Hugging Face's ClassLabel."""
    values = table[label].to_pylist()
    try:
        note = json.loads((table.schema.metadata or {})[b"huggingface"])
        names = note["info"]["features"][label]["names"]
        return [str(names[value]) if value >= 0 else value for value in values]
    except (LookupError, ValueError, TypeError, AttributeError):
        return values
