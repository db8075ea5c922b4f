"""Mixture health from records: middle of the runs, and nothing from nonsense."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ocil.report.details import health_charts
from ocil.report.groups import Group, group
from ocil.report.runs import Run

Make = Callable[..., dict[str, Any]]


def look(task: int, factor: float = 1.0) -> dict[str, Any]:
    pair = {"components": factor, "single": 2 * factor}
    return {
        "task": task,
        "step": 10 * task,
        "spread": [factor, None, 3 * factor],
        "drift": [] if task == 0 else [factor],
        "weight_min": [0.1],
        "weight_max": [0.5],
        "at_floor": [0.0, 0.5],
        "own_class_distance": {"test": pair, "replayed": pair, "arrival": pair},
    }


def grouped(records: Iterable[dict[str, Any]]) -> list[Group]:
    return group(map(Run, records))


def test_charts_show_the_middle_of_the_runs(make_record: Make) -> None:
    records = [make_record(seed=s, inside=[look(t, 2.0**s) for t in range(3)]) for s in range(3)]
    [g] = grouped(records)
    far, places, shares = health_charts(g)
    assert far.y.log
    assert [s.name for s in far.series][:2] == ["arrival, mixture", "arrival, one Gaussian"]
    assert far.series[0].y == [2.0, 2.0, 2.0]
    assert (far.series[1].low, far.series[1].high) == ([2.0] * 3, [8.0] * 3)
    spread, drift = places.series
    assert spread.y == [4.0] * 3  # the middle of 2 and 6, of the middle run
    assert drift.x == [2.0, 3.0]
    assert [s.y[0] for s in shares.series] == [0.5, 0.1, 0.25]


def test_runs_without_a_look_inside_have_no_charts(make_record: Make) -> None:
    [g] = grouped([make_record()])
    assert health_charts(g) == []


@pytest.mark.parametrize(
    "inside",
    [
        "<script>",
        {"task": 0},
        [1, None, "x"],
        [{"task": "0", "spread": [1.0]}],
        [{"task": 99, "spread": [1.0]}, {"task": -1, "spread": [1.0]}, {"spread": [1.0]}],
        [{"task": 0, "spread": {"a": 1}, "drift": "x", "own_class_distance": [1]}],
        [{"task": 0, "spread": [True, "1", None, 1e300], "own_class_distance": {"test": 3}}],
        [{"task": 0, "own_class_distance": {"test": {"components": -1.0, "single": 0}}}],
    ],
)
def test_nonsense_gives_nothing(make_record: Make, inside: Any) -> None:
    [g] = grouped([make_record(inside=inside)])
    assert health_charts(g) == []


def test_a_run_that_measured_less_takes_part_where_it_did(make_record: Make) -> None:
    records = [make_record(seed=0, inside=[look(0)]), make_record(seed=1, inside="?")]
    [g] = grouped(records)
    assert health_charts(g)[0].series[0].y == [1.0]
