"""Projected time of a run that fills a cell of the paper's tables, as a dry run of a study has it.

The settings are those of the shipped study that holds the cell, resolved with data set and preset
(an offline cell's epochs come from there), and its cost a batch is told by records alone: what no
record tells comes from ROOT/bench/steps.json (`bench/unknown_steps.py`), where steps were timed.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ocil.errors import OcilError
from ocil.files import read_plain, read_toml
from ocil.learners import registry
from ocil.paper.cells import Cell
from ocil.paper.published import Printed
from ocil.report.runs import Run
from ocil.study import estimate
from ocil.study.grid import shipped

Values = dict[str, Any]
STEPS = "bench/steps.json"
MAX_BYTES = 2**20


class Times:
    """Projects from the records of some runs."""

    def __init__(self, runs: Sequence[Run], root: Path | None = None) -> None:
        timed = _timed(root / STEPS) if root else []
        self.costs = estimate.costs_of([*(dict(run.record) for run in runs), *timed])

    def seconds(self, cell: Cell) -> float | None:
        """Of one run; None where nothing is known to go by."""
        settings = planned(cell.first)
        if settings is None:
            return None
        each = estimate.from_records(cell.first.method, settings, self.costs)
        count = estimate.batches(settings)
        return None if each is None or count is None else each * count


def _timed(file: Path) -> list[Values]:
    """Entries with method, settings, seconds and steps; a wrong one is left out by the estimate."""
    try:
        found = json.loads(read_plain(file, MAX_BYTES))
        return [e for e in found if {"method", "settings", "seconds", "steps"} <= e.keys()]
    except (OcilError, ValueError, AttributeError, TypeError, RecursionError):
        return []


def planned(number: Printed) -> Values | None:
    """All settings of a cell's run; None for an offline cell that no shipped study holds."""
    asked = {"data": number.data, "memory": number.memory, **number.settings}
    grid = next(_grids(number), None)
    if grid is None and number.offline:
        return None
    fields = registry.info(number.method).fields
    given = {k: v for k, v in (grid or {}).items() if k in fields and not isinstance(v, list)}
    return registry.resolve(number.method, given | asked)[0]


def _grids(number: Printed) -> Iterator[Values]:
    """The grids of shipped tables that hold a cell."""
    for name, path in shipped().items():
        if not name.startswith("table-") or (name == "table-offline") != number.offline:
            continue
        content = read_toml(path)
        for grid in content.get("grid", []):
            values = content.get("base", {}) | grid
            asked = {"method": number.method, "data": number.data, "memory": number.memory}
            whole = "limit_per_class" not in values
            if whole and all(wanted in _listed(values.get(key)) for key, wanted in asked.items()):
                yield values


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
