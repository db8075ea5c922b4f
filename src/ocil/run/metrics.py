"""What a run achieved, as pure functions of its evaluations; every accuracy is in percent.

a[t, i] is the accuracy on task i measured after task t was learned; T is the number of tasks.
Formulas count tasks from 1, arrays from 0. An entry that was not evaluated is nan, and a metric
that needs such an entry is None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Evaluation = Mapping[str, Any]
Matrix = NDArray[np.float64]  # (T, T)


def accuracy_matrix(
    evaluations: Sequence[Evaluation], tasks: Sequence[Sequence[int]], readout: str
) -> Matrix:
    """a[t, i] = 100 * correct / total over the labels of task i, evaluated after task t: (T, T).

    Only evaluations on all images count; where a row was measured twice the later one holds.

    >>> after = {"step": 9, "task": 0, "readout": "head", "images": "all"}
    >>> accuracy_matrix([after | {"correct": [9, 6], "total": [10, 10]}], [[0, 1]], "head")
    array([[75.]])
    """
    matrix = np.full((len(tasks), len(tasks)), np.nan)
    for evaluation in _chosen(evaluations, readout, "all"):
        matrix[evaluation["task"]] = [_accuracy(evaluation, labels) for labels in tasks]
    return matrix


def final_average_accuracy(matrix: Matrix) -> float:
    """A_T = (1/T) sum_i a[T, i]; nan where a task was not evaluated at the end.

    >>> final_average_accuracy(np.array([[90.0, np.nan], [70.0, 80.0]]))
    75.0
    """
    return float(matrix[-1].mean())


def average_forgetting(matrix: Matrix) -> float | None:
    """F = (1/(T-1)) sum_{i<T} F_i with F_i = max_{i<=t<=T} a[t, i] - a[T, i] >= 0.

    The maximum includes t = T, so a task that is at its best at the end has forgotten nothing
    (an online learner often improves on a task after it has passed).
    None for a single task or where a row was not evaluated (joint learning).

    >>> average_forgetting(np.array([[90.0, np.nan], [70.0, 80.0]]))
    20.0
    """
    size = len(matrix)
    lost = [matrix[i:, i].max() - matrix[-1, i] for i in range(size - 1)]
    return _mean_or_none(lost)


def accuracy_curve(matrix: Matrix) -> NDArray[np.float64]:
    """A_t = (1/t) sum_{i<=t} a[t, i] for t = 1..T: (T,), nan where row t was not evaluated.

    >>> accuracy_curve(np.array([[90.0, np.nan], [70.0, 80.0]]))
    array([90., 75.])
    """
    return np.array([matrix[t, : t + 1].mean() for t in range(len(matrix))])


def learning_accuracy(matrix: Matrix) -> float | None:
    """LA = (1/T) sum_i a[i, i]: how well each task is known just after it was learned.

    >>> learning_accuracy(np.array([[90.0, np.nan], [70.0, 80.0]]))
    85.0
    """
    return _mean_or_none(np.diagonal(matrix))


def backward_transfer(matrix: Matrix) -> float | None:
    """BWT = (1/(T-1)) sum_{i<T} (a[T, i] - a[i, i]); negative where later tasks did harm.

    >>> backward_transfer(np.array([[90.0, np.nan], [70.0, 80.0]]))
    -20.0
    """
    return _mean_or_none(matrix[-1, :-1] - np.diagonal(matrix)[:-1])


def average_anytime_accuracy(evaluations: Sequence[Evaluation], readout: str) -> float | None:
    """AAA = (1/N) sum_n acc_n over the N probe evaluations of a run.

    acc_n = 100 * correct / total on the probe images of the classes seen so far, which are the
    ones with total > 0. None without probes.

    >>> probe = {"step": 50, "task": 0, "readout": "head", "images": "probe"}
    >>> average_anytime_accuracy([probe | {"correct": [3, 0], "total": [4, 0]}], "head")
    75.0
    """
    points = anytime_curve(evaluations, readout)
    return _mean_or_none([accuracy for _, accuracy in points])


def anytime_curve(evaluations: Sequence[Evaluation], readout: str) -> list[tuple[int, float]]:
    """(step, acc_n) of every probe evaluation, in order of step; see average_anytime_accuracy.

    >>> probe = {"step": 50, "task": 0, "readout": "head", "images": "probe"}
    >>> anytime_curve([probe | {"correct": [3, 0], "total": [4, 0]}], "head")
    [(50, 75.0)]
    """
    probes = _chosen(evaluations, readout, "probe")
    points = [(int(probe["step"]), _accuracy(probe, None)) for probe in probes]
    return [point for point in points if not math.isnan(point[1])]


def worst_case_accuracy(
    evaluations: Sequence[Evaluation], tasks: Sequence[Sequence[int]], readout: str
) -> float | None:
    """WC-ACC = (1/T) a_T + (1 - 1/T) * (1/(T-1)) sum_{i<T} min_{n after task i} a_n,i.

    a_n,i is the accuracy of probe evaluation n on task i, and a_T that on the last task at the
    last probe. Only probes taken after task i was finished enter its minimum, so the dip just
    behind a task border counts (De Lange, van de Ven and Tuytelaars, "Continual evaluation for
    lifelong learning: identifying the stability gap", ICLR 2023). None where a task or what
    follows it has no evaluation (joint learning, a stream shorter than the probe interval).

    >>> def probe(step, task, correct):
    ...     return {"step": step, "task": task, "readout": "head", "images": "probe",
    ...             "correct": correct, "total": [10, 10]}
    >>> worst_case_accuracy(
    ...     [probe(1, 0, [9, 0]), probe(2, 1, [3, 7]), probe(3, 1, [6, 8])], [[0], [1]], "head")
    55.0
    """
    last = len(tasks) - 1
    probes = _chosen(evaluations, readout, "probe")
    passed = {e["task"] for e in evaluations if e["readout"] == readout}
    if not probes or probes[-1]["task"] != last or len(passed) <= last:
        return None
    worst = [
        min(_accuracy(probe, labels) for probe in probes if probe["task"] > i)
        for i, labels in enumerate(tasks[:last])
    ]
    return _mean_or_none([*worst, _accuracy(probes[-1], tasks[last])])


def calibration_error(confidence: ArrayLike, right: ArrayLike, bins: int = 15) -> float:
    """ECE = sum_b (n_b / n) |acc_b - conf_b| in percent, over bins of equal width of confidence.

    confidence (n,) in [0, 1] of the answers, right (n,) whether they were (Guo et al., ICML 2017).

    >>> calibration_error([0.8] * 4, [1, 1, 1, 0])
    5.0
    """
    conf, hits = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    place = np.minimum((conf * bins).astype(int), bins - 1)
    gaps = np.bincount(place, hits - conf, bins)  # n_b (acc_b - conf_b)
    return round(100 * float(np.abs(gaps).sum()) / len(conf), 10)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean m and s = sqrt(sum (x - m)^2 / (n - 1)); s is None for a single value.

    >>> mean_and_deviation([1.0, 2.0, 3.0])
    (2.0, 1.0)
    >>> mean_and_deviation([4.0])
    (4.0, None)
    """
    if not len(values):
        raise ValueError("the mean of no values is not defined")
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def paired_difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """Mean of d = a - b over paired runs and its 95 % interval m -+ t_{0.975, n-1} s / sqrt(n).

    >>> [round(x, 3) for x in paired_difference([3.0, 5.0, 7.0], [2.0, 3.0, 4.0])]
    [2.0, -0.484, 4.484]
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"an interval needs two or more pairs, got {len(a)} and {len(b)} values")
    from scipy.special import stdtrit  # only reports need it; scipy.stats loads far longer

    mean, deviation = mean_and_deviation([x - y for x, y in zip(a, b, strict=True)])
    half = float(stdtrit(len(a) - 1, 0.975)) * (deviation or 0.0) / math.sqrt(len(a))
    return mean, mean - half, mean + half


def _chosen(evaluations: Sequence[Evaluation], readout: str, images: str) -> list[Evaluation]:
    chosen = [e for e in evaluations if e["readout"] == readout and e["images"] == images]
    return sorted(chosen, key=lambda e: e["step"])


def _accuracy(evaluation: Evaluation, labels: Sequence[int] | None) -> float:
    """Percent right among the given labels (None: all); nan where none was evaluated."""
    correct, total = evaluation["correct"], evaluation["total"]
    chosen = range(len(total)) if labels is None else labels
    seen = sum(total[label] for label in chosen)
    return 100.0 * sum(correct[label] for label in chosen) / seen if seen else math.nan


def _mean_or_none(values: Sequence[float] | NDArray[np.float64]) -> float | None:
    return float(np.mean(values)) if len(values) and not np.isnan(values).any() else None
