"""One group of runs on the page: its numbers, pictures, runs, commands and settings."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ocil import text
from ocil.report import lines, scale
from ocil.report.charts import Chart, Line, curves, heat
from ocil.report.compare import interval
from ocil.report.groups import Group, readouts
from ocil.report.health import health_charts
from ocil.report.show import TITLES, percent
from ocil.report.tables import measured, rounded
from ocil.report.web.clouds import clouds
from ocil.report.web.gallery import Gallery, legend
from ocil.report.web.svg import level

LARGEST_TABLE = 12  # tasks; a larger matrix is a picture
METRICS = ("accuracy", "forgetting", "learning", "anytime", "worst")


@dataclass(frozen=True)
class Place:
    """Where a record lies, and how the page links to it; every record brings its own."""

    path: Path
    link: str


PLACE = "place on disk"  # the key under which a record of the page has it


def card(key: str, g: Group, label: str, gallery: Gallery) -> dict[str, Any]:
    """Everything that the page tells about one group."""
    size = None if g.memory is None else f"memory {g.memory:,}"
    settings = sorted((text.plain(k), text.setting(v)) for k, v in g.first["settings"].items())
    folders = [record[PLACE].path.parent for record in g.records]
    stem = key if g.split == "test" else ""  # figures of tuning runs are not for papers
    return {
        "id": key,
        "method": text.plain(g.method),
        "detail": ", ".join(part for part in (size, label) if part),
        "readout": text.plain(g.readout),
        "numbers": [_number(g, metric) for metric in METRICS if g.summary(metric)],
        "matrix": _matrix(stem, g, gallery),
        "readouts": _readouts(stem, g, gallery),
        "health": _own_legend(health_charts(g), stem and f"{stem}-inside", gallery),
        "clouds": _own_legend(clouds(folders), stem and f"{stem}-latent", gallery),
        "runs": [_run(g, place) for place in range(len(g.records))],
        "commands": [text.command(record["command"]) for record in g.records],
        "facts": _facts(g),
        "settings": [pair for pair in settings if pair[0] != "seed"],
    }


def _number(g: Group, metric: str) -> dict[str, str]:
    ends = interval(g, metric)
    between = f"{ends[0]:.2f} to {ends[1]:.2f}" if ends else ""
    return {"name": TITLES[metric], "value": measured(g.summary(metric)), "interval": between}


def _run(g: Group, place: int) -> dict[str, Any]:
    """One seed: its own numbers, and the record they come from."""
    record, numbers = g.records[place], g.numbers(g.readout)[place]
    cells = [percent(numbers[metric]) for metric in METRICS]
    facts = [record.get(key) for key in ("backbone_images_per_step", "seconds")]
    cells += ["–" if fact is None else f"{fact:,.4g}" for fact in facts]
    return {"seed": record["seed"], "cells": cells, "link": record[PLACE].link}


def _matrix(stem: str, g: Group, gallery: Gallery) -> dict[str, Any] | None:
    """The mean accuracy matrix as rows of (text, shade, what it is), or None where too large."""
    matrix = lines.mean_matrix(g, g.readout)
    if len(matrix) > LARGEST_TABLE or not len(matrix):
        return None
    names = lines.shared_task_names(g)
    rows = []
    for t, line in enumerate(matrix):
        told = [f"after task {t + 1}, on task {i + 1}: {v:.2f} %" for i, v in enumerate(line)]
        rows.append(
            [
                None
                if math.isnan(v)
                else (f"{v:.0f}" if v >= 99.95 else f"{v:.1f}", level(v), said)
                for v, said in zip(line, told, strict=True)
            ]
        )
    heads = [(i + 1, names[i] if names else "") for i in range(len(matrix))]
    files = gallery.offer(heat("Accuracy on each task", matrix), stem and f"{stem}-matrix")
    return {"heads": heads, "rows": rows, "files": files}


def _readouts(stem: str, g: Group, gallery: Gallery) -> dict[str, Any]:
    """The curves of every read-out through the tasks and while learning; a large matrix first."""
    names = readouts([g])
    found: list[tuple[Chart, str, str]] = []
    matrix = lines.mean_matrix(g, g.readout)
    if len(matrix) > LARGEST_TABLE:
        found.append((heat("Accuracy on each task", matrix), "mean over the runs", "matrix"))
    told = f"mean over the runs, band of one deviation for {g.readout}"
    main = names.index(g.readout)
    through = _several(lines.through_tasks(g, n, n) for n in names)
    if through:
        chart = curves("Average through the tasks", through, main=main)
        found.append((chart, told if len(g.records) > 1 else "", "tasks"))
    probes = _several(lines.anytime(g, n, n) for n in names)
    if probes:
        steps = scale.linear("batches of the stream", [x for p in probes for x in p.x], room=0.01)
        borders = lines.task_borders(g)
        title = "On the classes so far"
        chart = curves(title, probes, steps, "accuracy (%)", borders=borders, main=main)
        found.append((chart, "while learning, on probe images", "anytime"))
    shown = sorted({line.look or 0: line.name for line in [*through, *probes]}.items())
    return {
        "legend": legend(shown if len(names) > 1 else []),
        "pictures": [gallery.add(c, note, stem and f"{stem}-{what}") for c, note, what in found],
    }


def _several(found: Iterable[Line]) -> list[Line]:
    """Those with more than one point; each read-out keeps its look."""
    looked = [replace(line, look=place) for place, line in enumerate(found)]
    return [line for line in looked if len(line.x) > 1]


def _own_legend(found: list[Chart], name: str, gallery: Gallery) -> list[dict[str, Any]]:
    """Pictures that have nothing in common, each with its own legend."""
    return [
        {
            "picture": gallery.add(chart, name=name and f"{name}-{place + 1}"),
            "legend": legend([(s.look, s.name) for s in chart.series if not _centre(chart, s)]),
        }
        for place, chart in enumerate(found)
    ]


def _centre(chart: Chart, series: Any) -> bool:
    return chart.kind == "cloud" and bool(series.notes)


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
