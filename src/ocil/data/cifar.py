"""CIFAR-10 and CIFAR-100 as first published: pickled batches, in a folder or a tar archive.

A pickle is a small program; none of the code that it may ask for is run. Two fences stand here.
First every opcode is looked at: only those that build plain data, and the few by which numpy arrays
were pickled, pass, and memo indices are bounded. Then the unpickler knows three names only, and
what it gives for them are inert stand-ins of ours: they keep the bytes of an array, never call
anything, and cannot be altered.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ocil.data.archive import MAX_MEMBER_BYTES, tar_members
from ocil.data.find import Found
from ocil.data.reader import Chunk, Damage, integer_labels, reading
from ocil.data.sources import Source
from ocil.files import read_plain


def read_batches(source: Source, found: Found, part: str) -> Iterator[Chunk]:
    """The batches in a folder or in an archive, in the order of their names."""
    names = [n for n in source.member_md5 if n.startswith("test") == (part == "test")]
    limit = source.images(part) // len(names)
    if found.form == "batches":
        for name in names:
            with reading(found.paths[name], source):
                data = read_plain(found.paths[name], MAX_MEMBER_BYTES)
                chunk = _read_batch(source, data, limit)
            yield chunk
        return
    (path,) = found.paths.values()
    chunks: dict[str, Chunk] = {}
    with reading(path, source):
        for name, data in tar_members(path, names):
            try:
                chunks[name] = _read_batch(source, data, limit)
            except Damage as error:
                raise Damage(f"in {name}, {error}") from error
        missing = [name for name in names if name not in chunks]
        if missing:
            raise Damage(f"it lacks {' and '.join(missing)}")
    for name in names:  # the order in the archive is another one
        yield chunks.pop(name)


def _read_batch(source: Source, data: bytes, limit: int) -> Chunk:
    """Images (n, 3, 32, 32) and labels (n,) of one pickled batch."""
    batch = read_plain_pickle(data)
    array = batch.get("data")
    labels = batch.get("fine_labels" if source.classes == 100 else "labels")
    if not isinstance(array, _Array) or not isinstance(labels, list):
        raise Damage("it has no data and labels")
    channels, height, width = source.shape
    rows = array.rows(channels * height * width)
    if not 0 < len(rows) <= limit:
        raise Damage(f"it holds {len(rows)} images, expected 1 to {limit}")
    if len(labels) != len(rows):
        raise Damage(f"it holds {len(labels)} labels for {len(rows)} images")
    return rows.reshape(-1, *source.shape), integer_labels(labels, source.classes)


_OPCODES = frozenset(
    """
    PROTO FRAME STOP MARK POP POP_MARK DUP MEMOIZE PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET
    NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT
    STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINBYTES SHORT_BINBYTES
    EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_DICT DICT SETITEM SETITEMS GLOBAL STACK_GLOBAL REDUCE BUILD
    """.split()  # noqa: SIM905
)
_MAX_MEMO = 1_000_000  # an index in a pickle makes the unpickler allocate a table up to it


class _Pickled:
    """An object in a pickle: what it was made of and its state, and nothing is done with them."""

    __slots__ = ("arguments", "state")

    def __init__(self, *arguments: Any) -> None:
        self.arguments, self.state = arguments, ()

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Dtype(_Pickled):
    """Its first argument is the code, b"u1" in Python 2; a uint8 has no byte order or flags."""


class _Array(_Pickled):
    """Its state: version, shape, dtype, Fortran order, bytes."""

    def rows(self, width: int) -> np.ndarray:
        """Return uint8 (n, width), or raise for any other array."""
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            raise Damage("its array is incomplete")
        _, shape, dtype, fortran, data = self.state
        is_uint8 = isinstance(dtype, _Dtype) and dtype.arguments[:1] in (("u1",), (b"u1",))
        if not is_uint8 or fortran or not isinstance(data, bytes):
            raise Damage("its array is not uint8 in C order")
        if len(data) % width or shape != (len(data) // width, width):
            raise Damage(f"its array is not (n, {width}) with {len(data)} bytes")
        return np.frombuffer(data, dtype=np.uint8).reshape(shape)


class _Name:
    """What stands for a name in a pickle; called, it makes a _Pickled, and it refuses any state."""

    __slots__ = ("kind",)

    def __init__(self, kind: type[_Pickled]) -> None:
        self.kind = kind

    def __call__(self, *arguments: Any) -> _Pickled:
        return self.kind(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a name was given a state")


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _Name(_Array),
    ("numpy._core.multiarray", "_reconstruct"): _Name(_Array),
    ("numpy", "ndarray"): _Name(_Pickled),
    ("numpy", "dtype"): _Name(_Dtype),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _KNOWN[module, name]


def read_plain_pickle(data: bytes) -> dict[str, Any]:
    """Return the dictionary in a CIFAR pickle; arrays are _Array."""
    try:
        _check_opcodes(data)
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError("it is not a dictionary")
        # Python 2 wrote byte strings
        return {k.decode("latin1") if isinstance(k, bytes) else str(k): content[k] for k in content}
    except Exception as error:  # a hostile pickle can provoke any kind
        raise Damage(f"it is not a pickle of plain data and arrays ({error})") from error


def _check_opcodes(data: bytes) -> None:
    for opcode, argument, position in pickletools.genops(io.BytesIO(data)):
        if opcode.name not in _OPCODES:
            raise pickle.UnpicklingError(f"opcode {opcode.name} at byte {position}")
        is_put = opcode.name in ("PUT", "BINPUT", "LONG_BINPUT")
        if is_put and not 0 <= int(argument or 0) <= _MAX_MEMO:
            raise pickle.UnpicklingError(f"memo index {argument} at byte {position}")
