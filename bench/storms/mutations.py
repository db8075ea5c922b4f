"""Damage to files: bytes that flip, vanish or repeat, and values that nobody would write."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save

Draw = np.random.Generator
HUGE = "@@huge@@"  # stands for an integer of 5 000 digits, which json cannot write
DEEP = "@@deep@@"  # stands for 100 000 open brackets
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**400, HUGE, DEEP, 0.5, -0.0, 1e308, float("nan"),
    float("inf"), "", "er", "a" * 20_000, "\x1b[31m", "\ud800", "\0", [], {}, [[]], [None],
    {"a": {}}, [1] * 50, ["a", 1],
)  # fmt: skip


def in_bytes(data: bytes, draw: Draw) -> bytes:
    """One to four damages, most often where a format keeps its sizes: at its head and its end."""
    for _ in range(draw.integers(1, 5)):
        damage = _DAMAGES[draw.integers(len(_DAMAGES))]
        data = damage(data, _place(len(data), draw), draw)
    return data


def _place(size: int, draw: Draw) -> int:
    where = draw.random()
    if where < 0.25:
        return int(draw.integers(min(size, 300) + 1))
    if where < 0.5:
        return size - int(draw.integers(min(size, 600) + 1))
    return int(draw.integers(size + 1))


def _flip(data: bytes, at: int, draw: Draw) -> bytes:
    one = bytes([data[at] ^ (1 << draw.integers(8))]) if at < len(data) else b"\x01"
    return data[:at] + one + data[at + 1 :]


def _one(data: bytes, at: int, draw: Draw) -> bytes:
    return data[:at] + bytes([draw.choice([0, 1, 127, 128, 255])]) + data[at + 1 :]


def _cut(data: bytes, at: int, draw: Draw) -> bytes:
    return data[:at]


def _drop(data: bytes, at: int, draw: Draw) -> bytes:
    return data[:at] + data[at + int(draw.integers(1, 40)) :]


def _insert(data: bytes, at: int, draw: Draw) -> bytes:
    return data[:at] + draw.bytes(int(draw.integers(1, 40))) + data[at:]


def _repeat(data: bytes, at: int, draw: Draw) -> bytes:
    block = data[at : at + int(draw.integers(1, 200))]
    return data[:at] + block * int(draw.integers(2, 20)) + data[at:]


def _number(data: bytes, at: int, draw: Draw) -> bytes:
    """A length of four or eight bytes, little or big endian, that cannot be true."""
    form = str(draw.choice(["<I", ">I", "<Q", ">Q", "<H"]))
    most = 256 ** struct.calcsize(form) - 1
    value = int(draw.choice([0, 1, most, most // 2, most // 2 + 1, len(data), 10**4])) & most
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


def _swap(data: bytes, at: int, draw: Draw) -> bytes:
    size = int(draw.integers(1, 64))
    return (
        data[:at] + data[at + size : at + 2 * size] + data[at : at + size] + data[at + 2 * size :]
    )


_DAMAGES: tuple[Callable[[bytes, int, Draw], bytes], ...] = (
    _flip, _flip, _one, _cut, _drop, _insert, _repeat, _number, _number, _swap,
)  # fmt: skip


# ------------------------------------------------------------------ values


def in_json(data: bytes, draw: Draw) -> bytes:
    """Another value, another name or a missing one somewhere in a JSON text; it stays JSON."""
    content = json.loads(data)
    for _ in range(draw.integers(1, 3)):
        in_values(content, draw)
    text = json.dumps(content)
    return text.replace(f'"{HUGE}"', "9" * 5000).replace(f'"{DEEP}"', "[" * 100_000).encode()


def in_values(content: Any, draw: Draw) -> None:
    """Change one place of nested lists and dictionaries."""
    node: Any = content
    parent: Any = None
    key: Any = None
    while isinstance(node, dict | list) and node and (parent is None or draw.random() < 0.75):
        keys = list(node) if isinstance(node, dict) else range(len(node))
        parent, key = node, keys[int(draw.integers(len(keys)))]
        node = parent[key]
    if parent is None:
        return
    how = draw.random()
    if how < 0.15:
        del parent[key]
    elif how < 0.25 and isinstance(parent, dict):
        parent[f"{key}x"] = parent.pop(key)
    elif how < 0.35 and isinstance(parent, list):
        parent.extend([node] * 3)
    else:
        parent[key] = VALUES[int(draw.integers(len(VALUES)))]


def in_toml(data: bytes, draw: Draw) -> bytes:
    """A hostile value after the sign of equality of one line."""
    lines = data.decode().splitlines()
    places = [i for i, line in enumerate(lines) if "=" in line]
    at = places[int(draw.integers(len(places)))]
    values = ["9" * 5000, "9" * 400, "-1", "nan", "inf", "1e400", '""', "[]", "{}", "true", "[" * 9,
              "[" * 5000, "1979-05-27", '"\\ud800"', "[1, 2]", '["a", 1]', "0x" + "f" * 300,
              str(2**63), "[" + "1," * 3000 + "]"]  # fmt: skip
    lines[at] = lines[at].split("=")[0] + "= " + values[int(draw.integers(len(values)))]
    return "\n".join(lines).encode()


# ------------------------------------------------------------------ tensors with right sums


def in_tensors(tensors: dict[str, torch.Tensor], draw: Draw) -> None:
    """Another shape, type, name or content of one tensor."""
    name = sorted(tensors)[int(draw.integers(len(tensors)))]
    changed = _RESHAPED[int(draw.integers(len(_RESHAPED)))](tensors.pop(name))
    if changed is not None:
        tensors[name] = changed.contiguous().clone()
    elif draw.random() < 0.3:
        tensors[f"{name}.0"] = torch.zeros(2)


_RESHAPED: tuple[Callable[[torch.Tensor], torch.Tensor | None], ...] = (
    lambda t: None,
    lambda t: t.reshape(-1),
    lambda t: t[:-1] if t.dim() else t.reshape(1),
    lambda t: torch.cat([t, t]) if t.dim() else t.repeat(2),
    lambda t: t.new_zeros(()),
    lambda t: t.new_zeros((0, *t.shape[1:])),
    lambda t: t.new_zeros((0,)),
    lambda t: t[None],
    lambda t: t.transpose(0, -1) if t.dim() else t,
    lambda t: t.to(torch.int64),
    lambda t: t.to(torch.float64),
    lambda t: t.to(torch.float16),
    lambda t: t.to(torch.bool),
    lambda t: t.to(torch.uint8),
    lambda t: t.to(torch.complex64),
    lambda t: torch.full_like(t, torch.nan) if t.is_floating_point() else torch.full_like(t, 1),
    lambda t: torch.full_like(t, torch.inf) if t.is_floating_point() else torch.zeros_like(t),
    lambda t: torch.full_like(t, -1) if t.dtype.is_signed else torch.full_like(t, 255),
    lambda t: torch.full_like(t, 2**62) if t.dtype == torch.int64 else t * 0,
)


def forged_model(path: Path, draw: Draw) -> None:
    """A model file whose content was changed and whose checksum was made right again."""
    from ocil import modelfile

    note, tensors = modelfile.parse(path.read_bytes())
    tensors = dict(tensors)
    if draw.random() < 0.6:
        in_tensors(tensors, draw)
    else:
        in_values(note, draw)
        note = _written(note)
    path.write_bytes(modelfile.dump(note, tensors))


def forged_checkpoint(path: Path, draw: Draw) -> None:
    """The same for a checkpoint, given by its note."""
    from ocil.files import canonical

    note, blob = json.loads(path.read_bytes()), path.with_suffix(".safetensors").read_bytes()
    if draw.random() < 0.6:
        tensors = load(blob)
        in_tensors(tensors, draw)
        blob = save(tensors)
        path.with_suffix(".safetensors").write_bytes(blob)
    else:
        in_values(note, draw)
        note = _written(note)
    note["sha256"] = hashlib.sha256(blob).hexdigest()
    note.pop("check", None)
    note["check"] = hashlib.sha256(canonical(note)).hexdigest()
    path.write_text(json.dumps(note))


def forged_latents(path: Path, draw: Draw) -> None:
    """Other arrays or another note in a file of latents."""
    blob = path.read_bytes()
    size = int.from_bytes(blob[:8], "little")
    metadata = json.loads(blob[8 : 8 + size])["__metadata__"]
    tensors = load(blob)
    if draw.random() < 0.7:
        in_tensors(tensors, draw)
    else:
        key = next(iter(metadata))
        metadata[key] = in_json(metadata[key].encode(), draw).decode()
    path.write_bytes(save(tensors, metadata=metadata))


def _written(value: Any) -> Any:
    """Without what JSON cannot carry through a header."""
    text = json.dumps(value).replace(f'"{HUGE}"', "9" * 400).replace(f'"{DEEP}"', "[[[[]]]]")
    return json.loads(text)
