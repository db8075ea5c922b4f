"""Images in parquet: a column `image` or `img` of compressed bytes, and a column of labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ocil.data.damage import Damage, reading
from ocil.data.decoder import Chunk, Decoder, integer_labels
from ocil.data.images import decode_image
from ocil.data.places import Found
from ocil.data.source import Source
from ocil.errors import OcilError

_IMAGE_COLUMNS = ("image", "img")
_LABEL_COLUMNS = ("fine_label", "label")  # CIFAR-100 also has coarse ones
_TABLE_BYTES = 2 << 30  # unpacked
_CHUNK = 1000


def parquet_decoder(source: Source, found: Found) -> Decoder:
    """Return the decoder of train.parquet and test.parquet."""
    return Decoder(
        train=lambda: _decode(source, found.paths["train"], source.train),
        test=lambda: _decode(source, found.paths["test"], source.test),
        class_names=source.class_names,
    )


def _decode(source: Source, path: Path, limit: int) -> Iterator[Chunk]:
    pyarrow = load_pyarrow(path)
    with reading(source, path):
        try:
            yield from _chunks(source, pyarrow, path, limit)
        except pyarrow.lib.ArrowException as error:
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise Damage(f"it is not a readable parquet file ({problem})") from error


def load_pyarrow(path: Path) -> Any:
    """The package, or what to install to read `path`."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise OcilError(
            f"Reading {path} needs pyarrow, which is not installed; run `pip install ocil[data]`."
        ) from error
    return pyarrow


def _chunks(source: Source, pyarrow: Any, path: Path, limit: int) -> Iterator[Chunk]:
    with pyarrow.parquet.ParquetFile(path) as table:
        facts = table.metadata
        if not 0 < facts.num_rows <= limit:
            raise Damage(f"it holds {facts.num_rows} rows, expected 1 to {limit}")
        size = sum(facts.row_group(i).total_byte_size for i in range(facts.num_row_groups))
        if size > _TABLE_BYTES:
            raise Damage(f"it unpacks to {size} bytes, at most {_TABLE_BYTES} are read")
        image, label = _columns(pyarrow, table.schema_arrow)
        rows = 0
        for batch in table.iter_batches(batch_size=_CHUNK, columns=[image, label]):
            batch.validate(full=True)
            column = batch.column(0)
            data = column.field("bytes") if pyarrow.types.is_struct(column.type) else column
            images = np.empty((len(data), *source.shape), np.uint8)
            for row, item in enumerate(data):
                images[row] = _image(item.as_py(), source, rows + row)
            rows += len(data)
            yield images, integer_labels(batch.column(1).to_pylist(), source.classes)
        if rows != facts.num_rows:
            raise Damage(f"it announces {facts.num_rows} rows and holds {rows}")


def _image(data: bytes | None, source: Source, row: int) -> np.ndarray:
    if data is None:
        raise Damage(f"row {row} has no image")
    try:
        return decode_image(data, source.shape)
    except Damage as error:
        raise Damage(f"row {row} is {error}") from error


def _columns(pyarrow: Any, schema: Any) -> tuple[str, str]:
    """Return the column of image bytes (`image` or `image.bytes`) and that of the labels."""
    image = next((name for name in _IMAGE_COLUMNS if name in schema.names), None)
    label = next((name for name in _LABEL_COLUMNS if name in schema.names), None)
    if image is None or label is None:
        raise Damage("it has no columns image or img, and label or fine_label")
    kind = schema.field(image).type
    if pyarrow.types.is_struct(kind):
        inner = {field.name: field.type for field in kind}
        kind, image = inner.get("bytes"), f"{image}.bytes"
    if kind is None or not (pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)):
        raise Damage(f"its column {image} holds no bytes")
    if not pyarrow.types.is_integer(schema.field(label).type):
        raise Damage(f"its labels are {schema.field(label).type}, not integers")
    return image, label
