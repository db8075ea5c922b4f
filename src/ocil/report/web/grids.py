"""Tables as the page's template writes them: columns and cells with what it needs to know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ocil import text
from ocil.report.groups import Group
from ocil.report.render import NOTHING, Cell, Strong, Table
from ocil.report.show import TITLES
from ocil.report.tables import comparison, measured, memory, rounded

# heading -> what it means; nothing where the word says it
COLUMNS = {
    "method": "",
    "memory": "images that the replay memory holds",
    "settings": "what tells this row from others of its method",
    "read-out": "how the runs turn features into classes",
    "accuracy": f"{TITLES['accuracy']} in percent, mean ± standard deviation over seeds",
    "forgetting": f"{TITLES['forgetting']} in percent points",
    "anytime": f"{TITLES['anytime']}: on the classes so far, while learning",
    "runs": "runs that differ by their seed only",
    "images/step": "images that go through the net for one batch of the stream",
    "seconds": "time spent learning, as recorded",
}


def overview_grid(groups: list[Group], names: list[str], keys: list[str]) -> dict[str, Any]:
    """A row per group with the read-out that its runs report; each number leads to the runs."""
    shown = [name for name in COLUMNS if name != "settings" or any(names)]
    rows: list[list[Cell]] = []
    for g, label in zip(groups, names, strict=True):
        cells: dict[str, Cell] = {
            "method": g.method,
            "memory": memory(g),
            "settings": label,
            "read-out": g.readout,
            "accuracy": Strong(measured(g.summary("accuracy"))),
            "forgetting": measured(g.summary("forgetting")),
            "anytime": measured(g.summary("anytime")),
            "runs": len(g.records),
            "images/step": rounded(g.fact("backbone_images_per_step")),
            "seconds": rounded(g.fact("seconds")),
        }
        rows.append([cells[name] for name in shown])
    return _folded(grid(Table(tuple(shown), rows), keys), groups, names)


def readouts_grid(groups: list[Group], names: list[str], keys: list[str]) -> dict[str, Any] | None:
    """Every read-out's accuracy side by side; None where no run has more than one."""
    if max(len(g.first["readouts"]) for g in groups) < 2:
        return None
    table = comparison(groups)
    rows = [[row[0], memory(g), *row[1:]] for g, row in zip(groups, table.rows, strict=True)]
    columns = (table.columns[0], "memory", *table.columns[1:])
    return _folded(grid(Table(columns, rows, table.left), keys), groups, names)


def _folded(found: dict[str, Any], groups: list[Group], names: list[str]) -> dict[str, Any]:
    """On narrow screens memory and settings stand under the method instead of beside it."""
    for column in found["columns"]:
        column["fold"] = column["name"] in ("memory", "settings", "read-out")
    for row, g, label in zip(found["rows"], groups, names, strict=True):
        size = "" if g.memory is None else f"memory {g.memory:,}"
        row["under"] = text.plain(", ".join(part for part in (size, label) if part))
    return found


def grid(table: Table, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Columns and rows; `keys` are the ids on the page that the rows lead to."""
    columns = [
        {
            "name": text.plain(name),
            "left": name in table.left,
            "title": COLUMNS.get(name, ""),
            "fold": False,
        }
        for name in table.columns
    ]
    rows = [
        {"key": keys[place] if keys else "", "under": "", "cells": [_cell(cell) for cell in row]}
        for place, row in enumerate(table.rows)
    ]
    return {"columns": columns, "rows": rows}


def _cell(value: Cell) -> dict[str, Any]:
    shown = NOTHING if value is None else text.plain(value)
    return {"text": shown, "strong": isinstance(value, Strong), "key": ""}
