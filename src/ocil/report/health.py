"""The mixtures of a method from task to task, as far as its records tell (`inside`).

The key is optional and not checked when a record is read, so everything here is doubted: what is
not a finite number is left out, and a record without the key or with nonsense under it gives
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ocil.report.charts import Chart, Line, curves
from ocil.report.groups import Group

Reader = Callable[[Mapping[str, Any]], float]


def health_charts(g: Group) -> list[Chart]:
    """Own-class distances, spread and drift, shares: those that any run of the group measured."""
    far = {f"{kind}, {name}": _distance(kind, key) for kind in _KINDS for key, name in _FITS}
    charts = [
        ("Distance of features from their own class", "squared distance / dimension", far, True),
        ("Spread and drift of the centroids", "in units of deviation", _PLACES, False),
        ("Weights of the components", "share", _SHARES, False),
    ]
    found = [
        curves(title, lines, y_title=unit, log=log)
        for title, unit, readers, log in charts
        if (lines := _lines(g, readers))
    ]
    return found


def _lines(g: Group, readers: Mapping[str, Reader]) -> list[Line]:
    runs = [_by_task(record.get("inside"), len(record["tasks"])) for record in g.records]
    tasks = sorted({task for run in runs for task in run})
    found = []
    for place, (name, read) in enumerate(readers.items()):
        rows = [[read(run[t]) if t in run else math.nan for t in tasks] for run in runs]
        values = np.array(rows, dtype=np.float64).reshape(len(runs), len(tasks))
        values = values[np.isfinite(values).any(axis=1)]  # runs that measured it
        if values.size:
            found.append(Line(name, 1.0 + np.array(tasks, dtype=np.float64), values, place))
    return found


def _by_task(inside: Any, tasks: int) -> dict[int, Mapping[str, Any]]:
    """The look inside after each task; a later look at the same task holds."""
    looks = inside if isinstance(inside, list) else []
    return {
        look["task"]: look
        for look in looks
        if isinstance(look, dict) and type(look.get("task")) is int and 0 <= look["task"] < tasks
    }


def _distance(kind: str, fit: str) -> Reader:
    def read(look: Mapping[str, Any]) -> float:
        kinds = look.get("own_class_distance")
        fits = kinds.get(kind) if isinstance(kinds, dict) else None
        value = _finite(fits.get(fit)) if isinstance(fits, dict) else math.nan
        return value if value > 0 else math.nan  # the axis is logarithmic

    return read


def _over_classes(key: str, over: Callable[[Sequence[float]], Any]) -> Reader:
    def read(look: Mapping[str, Any]) -> float:
        values = look.get(key)
        known = [v for v in map(_finite, values if isinstance(values, list) else []) if v == v]
        return float(over(known)) if known else math.nan

    return read


def _finite(value: Any) -> float:
    sound = type(value) in (int, float) and abs(value) < 1e12
    return float(value) if sound else math.nan


_KINDS = ("arrival", "replayed", "test")
_FITS = (("components", "mixture"), ("single", "one Gaussian"))
_PLACES: Mapping[str, Reader] = {
    "spread of a class's centroids": _over_classes("spread", np.median),
    "drift while a task is learned": _over_classes("drift", np.median),
}
_SHARES: Mapping[str, Reader] = {
    "largest weight, middle class": _over_classes("weight_max", np.median),
    "smallest weight, middle class": _over_classes("weight_min", np.median),
    "variances at their floor": _over_classes("at_floor", np.mean),
}
