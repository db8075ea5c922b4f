"""Paired differences of a block: everyone against a reference that the reader may change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ocil import text
from ocil.report.charts import Chart, rows
from ocil.report.compare import (
    FEWEST,
    Difference,
    difference,
    differences,
    differences_table,
)
from ocil.report.web.gallery import Gallery
from ocil.report.web.grids import grid
from ocil.report.web.member import Member

_NOTE = "at the end, paired by seed; bars are 95 % intervals"
_MOST_NAMED = 6  # pairs that cannot be compared


def pairs(name: str, shown: Sequence[Member], gallery: Gallery) -> dict[str, Any] | None:
    """A picture for each reference, and all pairs as a table; None where there is no pair.

    The first reference is the most accurate group; joint learning, the ceiling, comes last.
    """
    found = differences([m.group for m in shown])
    if not found:
        return None
    names = {id(m.group): m.name for m in shown}
    enough = [d for d in found if d.mean is not None]
    paired = {id(g) for d in enough for g in (d.first, d.second)}
    bases = [m for m in shown if id(m.group) in paired]
    bases.sort(key=lambda m: m.group.settings.get("order") == "joint")
    charts = [_against(base, shown) for base in bases]
    few = [f"{names[id(d.first)]} and {names[id(d.second)]}" for d in found if d.mean is None]
    more = [f"{len(few) - _MOST_NAMED} more pairs"] if len(few) > _MOST_NAMED else []
    return {
        "fewest": FEWEST,
        "few": "; ".join([*few[:_MOST_NAMED], *more]),
        "picture": gallery.add(charts[0], _NOTE, f"{name}-differences") if charts else None,
        "choices": [(base.name, gallery.number(c)) for base, c in zip(bases, charts, strict=True)],
        "table": _table(enough, shown) if enough else None,
    }


def _table(found: Sequence[Difference], shown: Sequence[Member]) -> dict[str, Any]:
    """Both names lead to their runs, the numbers to those of the first."""
    names = {id(m.group): m.name for m in shown}
    keys = {id(m.group): m.key for m in shown}
    table = grid(differences_table(found, names), [keys[id(d.first)] for d in found])
    for row, d in zip(table["rows"], found, strict=True):
        row["cells"][1]["key"] = keys[id(d.second)]
    return table


def _against(base: Member, shown: Sequence[Member]) -> Chart:
    series = []
    for m in shown:
        d = difference(m.group, base.group)
        if m is not base and d.mean is not None:
            told = f"{d.mean:+.2f}; 95 % interval {d.low:+.2f} to {d.high:+.2f}"
            told += f"; seeds {text.number_ranges(d.seeds)}"
            series.append(m.series(told, d.mean, 0.0, (d.low, d.high)))
    unit = f"percent points above {text.plain(base.name, 40)}"
    return rows(f"Accuracy less that of {base.name}", unit, series, zero=True)
