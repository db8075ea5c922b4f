"""What a model file has learned, read from its note and tensors alone; no network is built."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ocil.errors import refusing
from ocil.mixture.diagnostics import at_floor, spread
from ocil.modelfile import CARRIED, ModelFile
from ocil.text import html, plain

PICTURES = 8  # of the memory, for each class
CLASSES = 1000  # on the page

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;border-bottom:1px solid #8884;
text-align:left}td.n{text-align:right;font-variant-numeric:tabular-nums}
img{height:32px;margin-right:3px;image-rendering:pixelated}:root{color-scheme:light dark}"""


@dataclass(frozen=True)
class Row:
    """One class."""

    label: str
    learned: int
    held: int  # in the memory
    components: int | None
    spread: float  # mean distance between its centroids, in units of sigma; nan for one alone
    at_floor: float  # share of its variances at their least value
    pictures: tuple[str, ...]  # PNG, as data addresses


@dataclass(frozen=True)
class Facts:
    """What the page shows."""

    about: dict[str, str]
    rows: tuple[Row, ...]
    more: int  # classes that are left out

    @property
    def lines(self) -> Iterator[str]:
        """For the terminal: the facts, then the first classes."""
        yield from (f"{key}: {value}" for key, value in self.about.items())
        for row in self.rows[:20]:
            parts = "" if row.components is None else f", {row.components} components"
            yield f"  {row.label}: {row.learned} learned, {row.held} in memory{parts}"
        left = len(self.rows[20:]) + self.more
        yield from [f"  and {left} more classes"] if left else []


@refusing("The model's content does not fit together")
def describe(content: ModelFile) -> Facts:
    """The facts of a file, as far as they can be told; strange content is an OcilError."""
    note, tensors = content
    labels, settings = note["scalars"]["labels"], note["settings"]
    y = tensors.get("learner.memory.column.y", torch.zeros(0, dtype=torch.int64))
    x = tensors.get("learner.memory.column.x")
    held = torch.bincount(y, minlength=len(labels)).tolist()
    health = _health(tensors, len(labels))
    rows = [
        Row(plain(label, 80), int(note["counts"][c]), held[c], *health[c], _pictures(x, y, c))
        for c, label in enumerate(labels[:CLASSES])
    ]
    size = plain(settings["memory"], 20)
    about = {
        "method": plain(note["method"], 40),
        "network": plain(note["module"] or settings["net"], 60),
        "items": f"{'x'.join(str(int(n)) for n in note['shape'])} {plain(note['dtype'], 10)}",
        "classes": str(len(labels)),
        "samples learned": str(sum(map(int, note["counts"]))),
        "memory": f"{len(y)} of {size}" if note["memory"] else "left out of the file",
        "backbone": _backbone(content),
        "tensors": size_of(sum(t.nbytes for t in tensors.values())),
        "pending": str(len(note["scalars"].get("pending", []))),
        "made by": f"ocil {plain(note['ocil'], 20)}, format {plain(note['version'], 20)}",
    }
    return Facts(
        {key: value for key, value in about.items() if value},
        tuple(rows),
        max(0, len(labels) - CLASSES),
    )


def _backbone(content: ModelFile) -> str:
    """Name, size and place of the backbone; empty without one."""
    if not (said := content.note.get("backbone")):
        return ""
    carried = any(name.startswith(CARRIED) for name in content.tensors)
    where = "carried by this file" if carried else "not in this file"
    hashed = plain(said["sha256"], 12)
    return f"{plain(said['name'], 120)}, {size_of(int(said['bytes']))}, sha256 {hashed}, {where}"


def size_of(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _pictures(x: torch.Tensor | None, y: torch.Tensor, label: int) -> tuple[str, ...]:
    """The first pictures of a class in the memory, where its items are pictures."""
    if x is None or x.dtype != torch.uint8 or x.ndim != 4 or x.shape[1] not in (1, 3):
        return ()
    return tuple(_png(x[i]) for i in (y == label).nonzero()[:PICTURES, 0])


def _health(
    tensors: dict[str, torch.Tensor], classes: int
) -> list[tuple[int | None, float, float]]:
    """Components in use, spread and share at the floor of each class; None without mixtures."""
    parts = [tensors.get(f"learner.mixtures.{name}") for name in ("mu", "var", "log_pi", "least")]
    if any(part is None for part in parts):
        return [(None, math.nan, math.nan)] * classes
    mu, var, log_pi, least = (part for part in parts if part is not None)
    active = log_pi > -torch.inf
    apart, low = spread(mu, var, active), at_floor(var, active, least)
    found = list(zip(active.sum(1).tolist(), apart.tolist(), low.tolist(), strict=True))[:classes]
    return found + [(0, math.nan, math.nan)] * (classes - len(found))


def _png(x: torch.Tensor) -> str:
    from PIL import Image

    pixels = np.ascontiguousarray(x.permute(1, 2, 0).numpy())
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    image.thumbnail((64, 64))
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def page(facts: Facts, judged: Sequence[str] = ()) -> str:
    """One HTML page without scripts or addresses of others; `judged`: sentences to lead with."""
    said = "<br>".join(html(line) for line in judged)
    about = "".join(f"<tr><th>{html(k)}<td>{html(v)}" for k, v in facts.about.items())
    mixed = any(row.components is not None for row in facts.rows)
    more = "<th>components<th>spread / &sigma;<th>at floor" if mixed else ""
    body = "".join(_row(row, mixed) for row in facts.rows)
    left = f"<p>and {facts.more} more classes</p>" if facts.more else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>ocil model</title>'
        f"<style>{_STYLE}</style><h1>What the model has learned</h1><p>{said}</p>"
        f"<table>{about}</table>"
        f"<p>The pictures are training images from the memory: share this page like the data.</p>"
        f"<table><tr><th>class<th>learned<th>in memory{more}<th>memory</tr>{body}</table>{left}"
        "</html>"
    )


def _row(row: Row, mixed: bool) -> str:
    cells = f"<tr><td>{html(row.label)}<td class=n>{row.learned}<td class=n>{row.held}"
    if mixed:
        numbers = (f"{v:.2f}" if math.isfinite(v) else "" for v in (row.spread, row.at_floor))
        cells += f"<td class=n>{row.components}" + "".join(f"<td class=n>{n}" for n in numbers)
    pictures = "".join(f'<img src="{address}" alt="">' for address in row.pictures)
    return f"{cells}<td>{pictures}</tr>"
