"""The pictures of one group of runs: accuracy matrix, curves of its read-outs, mixtures, features.

What a record tells of its mixtures (`inside`) is optional and not checked when it is read, so it is
doubted here: what is not a finite number is left out, and nonsense gives no picture.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ocil.report.charts import Chart, Line, curves, heat, linear
from ocil.report.groups import Group
from ocil.report.latent import clouds
from ocil.report.show import task_names
from ocil.run import metrics


def group_charts(g: Group) -> dict[str, Chart]:
    """By the end of the name of its file: whatever the runs of a group tell."""
    found = {"matrix": heat("Accuracy on each task (%)", mean_matrix(g, g.readout))}
    main = list(g.readouts).index(g.readout)
    through = _several(through_tasks(g, name, name) for name in g.readouts)
    if through:
        found["tasks"] = curves("Average through the tasks, by read-out", through, main=main)
    probes = _several(anytime(g, name, name) for name in g.readouts)
    if probes:
        steps = linear("batches of the stream", [x for p in probes for x in p.x], room=0.01)
        title = "While learning, on probe images of the classes so far"
        borders = task_borders(g)
        found["anytime"] = curves(title, probes, steps, "accuracy (%)", borders=borders, main=main)
    found |= {f"inside-{n}": chart for n, chart in enumerate(health_charts(g), 1)}
    latent = clouds(g.runs)
    return found | {f"latent-{n}": chart for n, chart in enumerate(latent, 1)}


def _several(found: Iterable[Line]) -> list[Line]:
    """Those with more than one point; each read-out keeps its look."""
    looked = [replace(line, look=place) for place, line in enumerate(found)]
    return [line for line in looked if len(line.x) > 1]


def mean_matrix(g: Group, readout: str) -> NDArray[np.float64]:
    """Mean accuracy matrix over the runs of a group: (T, T), nan where none was evaluated."""
    stack = np.stack([run.matrix(readout) for run in g.runs])
    known = np.isfinite(stack)
    total = np.where(known, stack, 0.0).sum(axis=0)
    return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)


def shared_task_names(g: Group) -> list[str] | None:
    """Class names of the tasks, if all runs of the group have the same tasks."""
    same = all(run.tasks == g.first.tasks for run in g.runs)
    return task_names(g.first.record) if same else None


def through_tasks(g: Group, readout: str, name: str) -> Line:
    """The curve A_t of every run at the tasks that all runs evaluated."""
    found = np.stack([run.curve(readout) for run in g.runs])
    known = np.isfinite(found).all(axis=0)
    return Line(name, 1 + np.flatnonzero(known).astype(np.float64), found[:, known])


def anytime(g: Group, readout: str, name: str) -> Line:
    """The probe accuracies of every run at the steps that all runs share."""
    runs = [dict(metrics.anytime_curve(run.evaluations, readout)) for run in g.runs]
    steps = sorted(set(runs[0]).intersection(*runs[1:]))
    values = np.array([[run[step] for step in steps] for run in runs])
    return Line(name, np.array(steps, dtype=np.float64), values.reshape(len(runs), len(steps)))


def task_borders(g: Group) -> Sequence[float]:
    """Mean step at which each task but the last ended; none where a run has no such step."""
    ends = [
        {e["task"]: e["step"] for e in run.evaluations if e["images"] == "all"} for run in g.runs
    ]
    tasks = range(len(g.first.tasks) - 1)
    return [
        float(np.mean([end[t] for end in ends])) for t in tasks if all(t in end for end in ends)
    ]


Reader = Callable[[Mapping[str, Any]], float]


def health_charts(g: Group) -> list[Chart]:
    """Own-class distances, spread and drift, shares: those that any run of the group measured."""
    far = {f"{kind}, {name}": _distance(kind, key) for kind in _KINDS for key, name in _FITS}
    charts = [
        ("Distance of features from their own class", "squared distance / dimension", far, True),
        ("Spread and drift of the centroids", "in units of deviation", _PLACES, False),
        ("Weights of the components", "share", _SHARES, False),
    ]
    return [
        curves(title, lines, y_title=unit, log=log)
        for title, unit, readers, log in charts
        if (lines := _lines(g, readers))
    ]


def _lines(g: Group, readers: Mapping[str, Reader]) -> list[Line]:
    runs = [_by_task(run.record.get("inside"), len(run.tasks)) for run in g.runs]
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
