"""Tables: .parquet of a named data set or of your own, and a Hugging Face data set saved on disk.

Pictures are compressed bytes in a column `image` or `img` (or in its field `bytes`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ocil.data.arrays import ITEMS, LABELS, MAX_BYTES, Raw
from ocil.data.find import Found
from ocil.data.pictures import decode_chunks
from ocil.data.reader import Chunk, Damage, integer_labels, reading
from ocil.data.sources import Source
from ocil.errors import OcilError
from ocil.files import open_plain, read_plain
from ocil.labels import Label
from ocil.text import plain

_MAX_TABLE_BYTES = 2 << 30  # unpacked
_MAX_JSON_BYTES = 16 << 20


@contextmanager
def _arrow(path: Path) -> Iterator[Any]:
    """The package pyarrow, or what to install to read `path`; its errors become Damage."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
        from pyarrow.lib import ArrowException
    except ImportError as error:
        raise OcilError(
            f"Reading {path} needs pyarrow, which is not installed; run `pip install ocil[data]`."
        ) from error
    try:
        yield pyarrow
    except ArrowException as error:
        problem = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Damage(f"its table cannot be read ({problem})") from error


def _read(pyarrow: Any, path: Path, max_bytes: int, max_rows: int | None = None) -> Any:
    """A parquet file as a table; it is refused by its head before anything is unpacked."""
    with open_plain(path), pyarrow.parquet.ParquetFile(path) as file:
        facts = file.metadata
        if max_rows and not 0 < facts.num_rows <= max_rows:
            raise Damage(f"it holds {facts.num_rows} rows, expected 1 to {max_rows}")
        size = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        if size > max_bytes:
            raise Damage(f"it unpacks to {size} bytes, at most {max_bytes} are read")
        table = file.read()
        table.validate(full=True)  # offsets that were not looked at read memory of others
        if len(table) != facts.num_rows:
            raise Damage(f"it announces {facts.num_rows} rows and holds {len(table)}")
        return table


def _bytes(pyarrow: Any, column: Any) -> list[bytes | None] | None:
    """The compressed pictures of a column, or of its field `bytes`; None if it holds others."""
    kind = pyarrow.types
    if kind.is_struct(column.type) and column.type.get_field_index("bytes") >= 0:
        column = column.combine_chunks().field("bytes")
    held = kind.is_binary(column.type) or kind.is_large_binary(column.type)
    return column.to_pylist() if held else None


def _first(names: tuple[str, ...], known: Any) -> str | None:
    return next((name for name in names if name in known), None)


def read_named(source: Source, found: Found, part: str) -> Iterator[Chunk]:
    """The images of train.parquet or test.parquet."""
    path = found.paths[f"{part}.parquet"]
    with reading(path, source), _arrow(path) as pyarrow:
        table = _read(pyarrow, path, _MAX_TABLE_BYTES, source.images(part))
        image = _first(("image", "img"), table.column_names)
        label = _first(("fine_label", "label"), table.column_names)  # there are coarse ones too
        if image is None or label is None:
            raise Damage("it has no columns image or img, and label or fine_label")
        if (pictures := _bytes(pyarrow, table[image])) is None:
            raise Damage(f"its column {image} holds no bytes")
        if not pyarrow.types.is_integer(table[label].type):
            raise Damage(f"its labels are {table[label].type}, not integers")
        labels = integer_labels(table[label].to_pylist(), source.classes)

    def read(i: int) -> tuple[str, bytes]:
        if (data := pictures[i]) is None:
            raise Damage(f"row {i} has no image")
        return f"row {i}", data

    yield from decode_chunks(source, path, read, labels)


def read_table(path: Path) -> dict[str, Raw]:
    """One table as train; a column of pictures, of lists of numbers, or numbers in columns."""
    with _arrow(path) as pyarrow:
        return {"train": _raw(pyarrow, _read(pyarrow, path, MAX_BYTES))}


def count_rows(path: Path) -> int:
    """How many rows a table announces."""
    with _arrow(path) as pyarrow, open_plain(path), pyarrow.parquet.ParquetFile(path) as file:
        return file.metadata.num_rows


def read_saved(path: Path) -> dict[str, Raw]:
    """A Hugging Face data set saved with save_to_disk: its splits train and test, or all."""
    if not (path / "dataset_dict.json").is_file():
        return {"train": _split(path)}
    splits = _json(path / "dataset_dict.json")["splits"]
    if "train" not in splits:
        raise Damage("it has no split named train")
    test = _first(("test", "validation", "valid"), splits)
    return {"train": _split(path / "train")} | ({"test": _split(path / test)} if test else {})


def _split(folder: Path) -> Raw:
    tables = []
    with _arrow(folder) as pyarrow:
        for name in [str(e["filename"]) for e in _json(folder / "state.json")["_data_files"]]:
            if Path(name).name != name or (folder / name).is_symlink():
                raise Damage(f"its file {plain(name, 80)} is not one of its own folder")
            with open_plain(folder / name):
                pass  # a pipe would be waited for
            if (folder / name).stat().st_size > MAX_BYTES:
                raise Damage(f"{plain(name, 80)} is larger than {MAX_BYTES} bytes")
            with pyarrow.memory_map(str(folder / name)) as source:
                tables.append(pyarrow.ipc.open_stream(source).read_all())
                tables[-1].validate(full=True)
        return _raw(pyarrow, pyarrow.concat_tables(tables))


def _json(path: Path) -> dict[str, Any]:
    return json.loads(read_plain(path, _MAX_JSON_BYTES))


def _raw(pyarrow: Any, table: Any) -> Raw:
    lower = {name.lower(): name for name in table.column_names}
    label = _first(("label", *LABELS), lower)  # where there is one, y may be a coordinate
    if label is None:
        raise Damage(f"it has no column {', '.join(LABELS[:-1])}")
    labels = _class_names(table, lower[label])
    item = _first(ITEMS, lower)
    column = table[lower[item]] if item else None
    if column is None or (item == "x" and pyarrow.types.is_primitive(column.type)):
        rest = [n for n in table.column_names if n != lower[label]]
        return Raw(np.stack([table[n].to_numpy() for n in rest], 1), labels)
    if (pictures := _bytes(pyarrow, column)) is not None:
        return Raw(lambda i: pictures[i] or b"", labels)
    if not pyarrow.types.is_nested(column.type) or pyarrow.types.is_struct(column.type):
        name = plain(lower[item or ""], 80)
        raise Damage(f"its column {name} holds {column.type}, no pictures and no vectors")
    return Raw(np.array(column.to_pylist()), labels)


def _class_names(table: Any, label: str) -> list[Label]:
    """The labels; by their names where the table carries those of Hugging Face's ClassLabel."""
    values = table[label].to_pylist()
    try:
        note = json.loads((table.schema.metadata or {})[b"huggingface"])
        names = note["info"]["features"][label]["names"]
        return [str(names[value]) if value >= 0 else value for value in values]
    except (LookupError, ValueError, TypeError, AttributeError):
        return values
