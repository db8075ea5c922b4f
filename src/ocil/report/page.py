"""The page: one HTML file that shows groups of runs, without scripts and without a network."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ocil.errors import OcilError
from ocil.report import figures, lines, text
from ocil.report.groups import Group, Record, group, labels, readouts
from ocil.report.render import Strong, Table
from ocil.report.show import TITLES
from ocil.report.tables import comparison, measured, rounded

MOST_CURVES = 12  # in one picture


def write_page(records: Sequence[tuple[Path, Record]], out_dir: Path | str) -> Path:
    """Write OUT_DIR/index.html for (path, record) pairs as `find_records` gives them."""
    if not records:
        raise OcilError("There is no record to report; run `ocil run` first or name its folder.")
    out_dir = Path(out_dir)
    page = render_page(records, out_dir)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=out_dir, prefix=".index-", suffix=".html")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(page)
            os.chmod(temporary, 0o644)  # mkstemp's files are for the owner only
            os.replace(temporary, out_dir / "index.html")
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as problem:
        raise OcilError(
            f"The page cannot be written to {out_dir} ({problem.strerror}); choose another --out."
        ) from None
    return out_dir / "index.html"


def render_page(records: Sequence[tuple[Path, Record]], out_dir: Path) -> str:
    """The text of the page; the links to the records are relative to out_dir."""
    try:
        import jinja2
    except ImportError:
        raise OcilError(
            "The page needs jinja2; install it with `pip install ocil[report]`."
        ) from None
    template = (files("ocil.report") / "page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    links = {id(record): _link(path, out_dir) for path, record in records}
    groups = group(record for _, record in records)
    places = sorted({(g.split, g.data) for g in groups})
    sections = [
        _section(number, [g for g in groups if (g.split, g.data) == place], links)
        for number, place in enumerate(places)
    ]
    return environment.from_string(template).render(
        sections=sections, runs=sum(len(g.records) for g in groups), groups=len(groups)
    )


def _section(number: int, groups: list[Group], links: Mapping[int, str]) -> dict[str, Any]:
    """One data set and split: its comparison and its groups."""
    names = labels(groups)
    cards = [
        _card(f"g{number}-{i}", g, name, links)
        for i, (g, name) in enumerate(zip(groups, names, strict=True))
    ]
    return {
        "data": text.plain(groups[0].data),
        "tuning": groups[0].split == "validation",
        "table": _table(comparison(groups), groups, cards),
        "curves": list(_comparisons(f"s{number}", groups, names)),
        "cards": cards,
    }


def _comparisons(key: str, groups: list[Group], names: list[str]) -> Iterator[dict[str, Any]]:
    """For each memory size the curves of its groups and of those that have no memory."""
    for size in sorted({g.memory for g in groups if g.memory is not None}) or [None]:
        members = [(g, n) for g, n in zip(groups, names, strict=True) if g.memory in (size, None)]
        shown = [
            lines.through_tasks(g, g.readout, f"{g.method} ({name})" if name else g.method)
            for g, name in members[:MOST_CURVES]
        ]
        if len(shown) > 1:
            caption = f"Through the tasks{f', memory {size:,}' if size else ''}"
            if len(members) > MOST_CURVES:
                caption += f" (the first {MOST_CURVES} of {len(members)})"
            picture = figures.curve_figure(shown, size=(4.4, 3.2))
            yield {"caption": caption, "svg": _svg(picture, f"{key}-{size}")}


def _card(key: str, g: Group, label: str, links: Mapping[int, str]) -> dict[str, Any]:
    """Everything that the page tells about one group."""
    size = None if g.memory is None else f"memory {g.memory:,}"
    settings = sorted((text.plain(k), text.setting(v)) for k, v in g.first["settings"].items())
    return {
        "id": key,
        "method": text.plain(g.method),
        "name": ", ".join(part for part in (text.plain(g.method), size, label) if part),
        "detail": ", ".join(part for part in (size, label) if part),
        "readout": text.plain(g.readout),
        "numbers": [
            (TITLES[metric], measured(summary))
            for metric in ("accuracy", "forgetting", "learning", "anytime", "worst")
            if (summary := g.summary(metric))
        ],
        "facts": _facts(g),
        "pictures": _pictures(key, g),
        "command": text.command(g.first["command"]),
        "settings": [pair for pair in settings if pair[0] != "seed"],
        "records": [(record["seed"], links[id(record)]) for record in g.records],
    }


def _facts(g: Group) -> list[tuple[str, str]]:
    facts = [
        ("runs", f"{len(g.seeds)} (seed {text.number_ranges(g.seeds)})"),
        ("preset", text.plain(g.first.get("preset") or "")),
        ("images through the net", _of(g, "backbone_images_per_step", "per step")),
        ("gradient steps", _of(g, "gradient_steps_per_batch", "per batch")),
        ("state held", _of(g, "bytes_held", "MB", 1e-6)),
        ("learning time", _of(g, "seconds", "s")),
    ]
    return [(name, value) for name, value in facts if value]


def _of(g: Group, key: str, unit: str, factor: float = 1.0) -> str:
    summary = g.fact(key, factor)
    return f"{rounded(summary)} {unit}" if summary else ""


def _pictures(key: str, g: Group) -> list[dict[str, Any]]:
    """Accuracy matrix, curve through tasks and anytime curve, as far as they were measured."""
    matrix = lines.mean_matrix(g, g.readout)
    heat = figures.matrix_figure(matrix, lines.shared_task_names(g))
    found = [("matrix", f"Accuracy on each task (%), {g.readout}", heat)]
    names = readouts([g])
    curves = _several(lines.through_tasks(g, n, n) for n in names)
    if curves:
        found.append(("curve", "Average through the tasks", figures.curve_figure(curves)))
    probes = _several(lines.anytime(g, n, n) for n in names)
    if probes:
        picture = figures.anytime_figure(probes, lines.task_borders(g))
        caption = "On the classes so far, while learning"
        caption += f", {probes[0].name}" if len(probes) == 1 else ""
        found.append(("curve", caption, picture))
    return [
        {"kind": kind, "caption": text.plain(caption), "svg": _svg(figure, f"{key}-{i}")}
        for i, (kind, caption, figure) in enumerate(found)
    ]


def _several(found: Iterable[figures.Line]) -> list[figures.Line]:
    """Those with more than one point; each read-out keeps its colour."""
    looks = [replace(line, look=place) for place, line in enumerate(found)]
    return [line for line in looks if len(line.x) > 1]


def _table(table: Table, groups: Sequence[Group], cards: Sequence[Mapping[str, Any]]) -> Any:
    """Cells as (text, strong), with the memory beside the method and a link to the group."""
    rows = []
    for g, card, row in zip(groups, cards, table.rows, strict=True):
        cells = [("–" if c is None else text.plain(c), isinstance(c, Strong)) for c in row[1:]]
        size = "–" if g.memory is None else f"{g.memory:,}"
        about = {key: card[key] for key in ("id", "method", "detail")}
        rows.append(about | {"memory": size, "cells": cells})
    columns = [(text.plain(name), name in table.left) for name in table.columns[1:]]
    return {"columns": columns, "rows": rows}


def _svg(figure: Any, salt: str) -> Any:
    from markupsafe import Markup

    return Markup(figures.svg(figure, salt))  # matplotlib has escaped the text in it


def _link(path: Path, out_dir: Path) -> str:
    try:
        return quote(os.fsencode(Path(os.path.relpath(path, out_dir)).as_posix()))
    except ValueError:  # another drive on Windows
        return path.resolve().as_uri()
