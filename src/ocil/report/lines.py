"""What figures draw, computed from groups of runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ocil.report.charts import Line
from ocil.report.groups import Group
from ocil.report.show import task_names
from ocil.run import metrics


def mean_matrix(g: Group, readout: str) -> NDArray[np.float64]:
    """Mean accuracy matrix over the runs of a group: (T, T), nan where none was evaluated."""
    stack = g.matrices(readout)
    known = np.isfinite(stack)
    total = np.where(known, stack, 0.0).sum(axis=0)
    return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)


def shared_task_names(g: Group) -> list[str] | None:
    """Class names of the tasks, if all runs of the group have the same tasks."""
    same = all(record["tasks"] == g.first["tasks"] for record in g.records)
    return task_names(g.first) if same else None


def through_tasks(g: Group, readout: str, name: str) -> Line:
    """The curve A_t of every run at the tasks that all runs evaluated."""
    curves = np.stack([metrics.accuracy_curve(matrix) for matrix in g.matrices(readout)])
    known = np.isfinite(curves).all(axis=0)
    return Line(name, 1 + np.flatnonzero(known).astype(np.float64), curves[:, known])


def anytime(g: Group, readout: str, name: str) -> Line:
    """The probe accuracies of every run at the steps that all runs share."""
    runs = [dict(metrics.anytime_curve(r["evaluations"], readout)) for r in g.records]
    steps = sorted(set(runs[0]).intersection(*runs[1:]))
    values = np.array([[run[step] for step in steps] for run in runs])
    return Line(name, np.array(steps, dtype=np.float64), values.reshape(len(runs), len(steps)))


def task_borders(g: Group) -> Sequence[float]:
    """Mean step at which each task but the last ended; none where a run has no such step."""
    ends = [
        {e["task"]: e["step"] for e in record["evaluations"] if e["images"] == "all"}
        for record in g.records
    ]
    tasks = range(len(g.first["tasks"]) - 1)
    return [
        float(np.mean([end[t] for end in ends])) for t in tasks if all(t in end for end in ends)
    ]
