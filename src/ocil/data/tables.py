"""Tables of your own: .parquet, and a Hugging Face data set saved on disk.

Each reader gives raw items (an array, or compressed pictures row by row) and labels.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ocil.data.arrays import ITEMS, LABELS, MOST_BYTES, Raw
from ocil.data.damage import Damage
from ocil.data.parquet import load_pyarrow
from ocil.data.source import printable
from ocil.files import open_plain, read_plain

_JSON_BYTES = 16 << 20


def read_parquet(path: Path) -> dict[str, Raw]:
    """One table as train; a column of pictures, of lists of numbers, or numbers in columns."""
    pyarrow = load_pyarrow(path)
    with open_plain(path), pyarrow.parquet.ParquetFile(path) as file:
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
        with open_plain(folder / name):
            pass  # a pipe would be waited for
        if (folder / name).stat().st_size > MOST_BYTES:
            raise Damage(f"{printable(name)} is larger than {MOST_BYTES} bytes")
        with pyarrow.memory_map(str(folder / name)) as source:
            tables.append(_arrow(pyarrow, lambda s=source: pyarrow.ipc.open_stream(s).read_all()))
    return _raw(pyarrow, pyarrow.concat_tables(tables))


def _named(known: dict[str, str], names: tuple[str, ...]) -> str | None:
    """The first of the names that there is."""
    return next((known[name] for name in names if name in known), None)


def _json(path: Path) -> dict[str, Any]:
    return json.loads(read_plain(path, _JSON_BYTES))


def _arrow(pyarrow: Any, read: Any) -> Any:
    """A table whose offsets and sizes were all looked at: others read memory that is not theirs."""
    try:
        table = read()
        table.validate(full=True)
        return table
    except pyarrow.lib.ArrowException as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Damage(f"its table cannot be read ({problem})") from error


def _raw(pyarrow: Any, table: Any) -> Raw:
    lower = {name.lower(): name for name in table.column_names}
    label = _named(lower, ("label", *LABELS))  # where there is one, y may be a coordinate
    if label is None:
        raise Damage(f"it has no column {', '.join(LABELS[:-1])}")
    labels = _class_names(table, label)
    name = _named(lower, ITEMS)
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
