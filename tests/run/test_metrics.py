"""Each metric against a small example worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ocil.run import metrics

NAN = float("nan")

# Three tasks; task 1 improves after it has passed (60 -> 70), task 2 gets worse (90 -> 40).
MATRIX = np.array([[60.0, NAN, NAN], [70.0, 90.0, NAN], [50.0, 40.0, 80.0]])
JOINT = np.array([[NAN, NAN], [70.0, 80.0]])


def evaluation(
    step: int, task: int, correct: list[int], total: list[int], images: str = "probe"
) -> dict[str, Any]:
    return {
        "step": step,
        "task": task,
        "readout": "head",
        "images": images,
        "correct": correct,
        "total": total,
    }


def test_matrix_pools_the_labels_of_a_task_and_ignores_probes_and_other_readouts() -> None:
    tasks = [[2, 0], [1, 3]]
    evaluations = [
        evaluation(20, 1, [5, 1, 5, 2], [10, 10, 30, 10], "all"),
        evaluation(10, 0, [10, 0, 20, 0], [10, 0, 30, 0], "all"),
        evaluation(5, 0, [0, 0, 0, 0], [10, 0, 30, 0]),
        evaluation(20, 1, [0, 0, 0, 0], [10, 10, 30, 10], "all") | {"readout": "ema-head"},
    ]
    # after task 1: (20 + 10) / (30 + 10) = 75 %, labels 1 and 3 not evaluated
    # after task 2: (5 + 5) / (30 + 10) = 25 % and (1 + 2) / (10 + 10) = 15 %
    expected = [[75.0, NAN], [25.0, 15.0]]
    np.testing.assert_array_equal(metrics.accuracy_matrix(evaluations, tasks, "head"), expected)


def test_a_row_measured_twice_holds_the_later_evaluation() -> None:
    twice = [evaluation(9, 0, [4], [10], "all"), evaluation(3, 0, [1], [10], "all")]
    assert metrics.accuracy_matrix(twice, [[0]], "head")[0, 0] == 40.0


def test_final_average_accuracy() -> None:
    # (50 + 40 + 80) / 3 = 56.67
    assert metrics.final_average_accuracy(MATRIX) == pytest.approx(170 / 3)
    assert metrics.final_average_accuracy(JOINT) == 75.0


def test_a_task_that_was_not_evaluated_at_the_end_leaves_no_number() -> None:
    missing = np.array([[60.0, NAN, NAN], [70.0, 90.0, NAN], [50.0, NAN, 80.0]])
    assert np.isnan(metrics.final_average_accuracy(missing))
    assert metrics.average_forgetting(missing) is None
    assert metrics.backward_transfer(missing) is None
    np.testing.assert_array_equal(metrics.accuracy_curve(missing), [60.0, 80.0, NAN])


def test_forgetting_takes_the_best_ever_including_the_end() -> None:
    # task 1: max(60, 70, 50) - 50 = 20; task 2: max(90, 40) - 40 = 50; mean 35
    assert metrics.average_forgetting(MATRIX) == 35.0
    # best at the end: max(60, 70) - 70 = 0, not -10
    assert metrics.average_forgetting(np.array([[60.0, NAN], [70.0, 80.0]])) == 0.0


def test_accuracy_curve() -> None:
    # 60; (70 + 90) / 2 = 80; 170 / 3
    np.testing.assert_allclose(metrics.accuracy_curve(MATRIX), [60.0, 80.0, 170 / 3])
    np.testing.assert_array_equal(metrics.accuracy_curve(JOINT), [NAN, 75.0])


def test_learning_accuracy_and_backward_transfer() -> None:
    # (60 + 90 + 80) / 3; ((50 - 60) + (40 - 90)) / 2 = -30
    assert metrics.learning_accuracy(MATRIX) == pytest.approx(230 / 3)
    assert metrics.backward_transfer(MATRIX) == -30.0


@pytest.mark.parametrize(
    "metric", [metrics.average_forgetting, metrics.learning_accuracy, metrics.backward_transfer]
)
def test_what_a_joint_run_never_measured_is_none(metric: Any) -> None:
    assert metric(JOINT) is None


def test_a_single_task_has_nothing_to_forget() -> None:
    single = np.array([[88.0]])
    assert metrics.average_forgetting(single) is None
    assert metrics.backward_transfer(single) is None
    assert metrics.learning_accuracy(single) == 88.0


def probes() -> list[dict[str, Any]]:
    """Three tasks of one class each, 10 probe images a class."""
    return [
        evaluation(50, 0, [9, 0, 0], [10, 0, 0]),
        evaluation(100, 1, [2, 1, 0], [10, 10, 0]),
        evaluation(150, 1, [6, 9, 0], [10, 10, 0]),
        evaluation(200, 2, [4, 3, 5], [10, 10, 10]),
        evaluation(250, 2, [5, 6, 7], [10, 10, 10]),
    ]


def test_average_anytime_accuracy() -> None:
    # 9/10 = 90; 3/20 = 15; 15/20 = 75; 12/30 = 40; 18/30 = 60; mean 280 / 5 = 56
    assert metrics.average_anytime_accuracy(probes(), "head") == pytest.approx(56.0)
    assert [step for step, _ in metrics.anytime_curve(probes()[::-1], "head")] == [
        50,
        100,
        150,
        200,
        250,
    ]
    assert metrics.average_anytime_accuracy(probes(), "ema-head") is None


def test_worst_case_accuracy() -> None:
    # task 1 after it ended: min(20, 60, 40, 50) = 20; task 2 after it ended: min(30, 60) = 30
    # (10 and 90 were measured while it was learned and do not count); last task at the end: 70.
    # (1/3) 70 + (2/3) (20 + 30) / 2 = 23.33 + 16.67 = 40
    tasks = [[0], [1], [2]]
    assert metrics.worst_case_accuracy(probes(), tasks, "head") == pytest.approx(40.0)


def test_worst_case_accuracy_is_none_where_it_is_not_defined() -> None:
    tasks = [[0], [1], [2]]
    assert metrics.worst_case_accuracy([], tasks, "head") is None
    assert metrics.worst_case_accuracy(probes()[:3], tasks, "head") is None  # no probe in task 3
    joint = [e | {"task": 2, "total": [10, 10, 10]} for e in probes()]
    assert metrics.worst_case_accuracy(joint, tasks, "head") is None
    assert metrics.worst_case_accuracy(probes()[:1], [[0]], "head") == 90.0


def test_worst_case_accuracy_needs_no_probe_inside_a_short_task() -> None:
    ends = [evaluation(60, 1, [1, 1, 0], [10, 10, 0], "all")]
    short = [e for e in probes() if e["task"] != 1] + ends
    # task 1: min(40, 50) = 40; task 2: min(30, 60) = 30; (40 + 30 + 70) / 3
    worst = metrics.worst_case_accuracy(short, [[0], [1], [2]], "head")
    assert worst == pytest.approx(140 / 3)


def test_deviation_divides_by_n_minus_1() -> None:
    # mean 5, squares 9 + 1 + 1 + 9 = 20, 20 / 3
    mean, deviation = metrics.mean_and_deviation([2.0, 4.0, 6.0, 8.0])
    assert mean == 5.0
    assert deviation == pytest.approx((20 / 3) ** 0.5)
    assert metrics.mean_and_deviation([7.0]) == (7.0, None)
    with pytest.raises(ValueError, match="no values"):
        metrics.mean_and_deviation([])


def test_paired_difference() -> None:
    # d = 1, 2, 3: mean 2, s = 1, t_{0.975, 2} = 4.30265 (tables), half = 4.30265 / sqrt(3)
    mean, low, high = metrics.paired_difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert mean == 2.0
    assert (low, high) == pytest.approx((2 - 2.48414, 2 + 2.48414), abs=1e-4)
    with pytest.raises(ValueError, match="two or more pairs"):
        metrics.paired_difference([1.0], [2.0])
