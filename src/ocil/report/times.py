"""Projected time of a run that fills a cell of the paper's tables, without loading a method.

`ocil study --dry-run` knows a method's presets and can time what no record tells; a report reads
records only. Seconds of a run = batches of its stream x seconds of a batch, and the latter are,
at one gradient step a batch unless the shipped study of the table says otherwise,

1. those of the method's records on the same data and net, scaled by gradient steps;
2. ER's there, or on other data scaled by pixels, times what the method costs relative to ER.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from math import ceil, prod
from typing import Any

from ocil.data import SOURCES
from ocil.files import read_toml
from ocil.learners import registry
from ocil.report.cells import Cell
from ocil.report.groups import Record
from ocil.report.published import Printed
from ocil.settings import Settings, fields_of, to_mapping
from ocil.study.grid import shipped

PLACE = ("net", "width", "precision")
Values = dict[str, Any]


class Times:
    """Projects from a set of records."""

    def __init__(self, records: Sequence[Record]) -> None:
        known = [(r, r.get("seconds"), r.get("steps")) for r in records]
        self.costs = [  # method, settings, seconds of a batch
            (r["method"], r["settings"], seconds / steps)
            for r, seconds, steps in known
            if seconds and steps and type(r["settings"].get("steps", 1)) is int
        ]

    def seconds(self, cell: Cell) -> float | None:
        """Of one run; None where nothing is known to go by."""
        number = cell.first
        source, s = SOURCES[number.data], planned(number)
        if s is None:
            return None
        own = self._batch(number.method, s, [number.data])
        if own is None:
            ratio = registry.relative_cost(number.method, s["net"])
            alike = [name for name in SOURCES if _pixels(name) == _pixels(number.data)]
            tried = (self._batch("er", s, d) for d in ([number.data], alike, list(SOURCES)))
            er = next((each for each in tried if each is not None), None)
            own = None if ratio is None or er is None else ratio * er
        return None if own is None else own * s["epochs"] * ceil(source.train / s["batch"])

    def _batch(self, method: str, s: Values, data: list[str]) -> float | None:
        """Seconds of a batch with the settings s, by records of a method on some data."""
        found = [
            each * s["steps"] / max(c["steps"], 1) * _pixels(s["data"]) / _pixels(c["data"])
            for name, c, each in self.costs
            if name == method and c["data"] in data and all(c[key] == s[key] for key in PLACE)
        ]
        # an MLP's time hardly follows the pixels
        same = data == [s["data"]] or s["net"] != "mlp"
        return statistics.median(found) if found and same else None


def planned(number: Printed) -> Values | None:
    """Settings of a cell's run as far as they are known here; None without its number of passes."""
    usual = {**to_mapping(Settings()), **SOURCES[number.data].protocol, "data": number.data}
    for grid in _grids(number):
        chosen = {k: v for k, v in grid.items() if k in fields_of(Settings)}
        return usual | {k: v for k, v in chosen.items() if not isinstance(v, list)}
    return None if number.offline else usual


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


def _pixels(data: str) -> int:
    return prod(SOURCES[data].shape)
