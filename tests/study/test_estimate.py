"""Expected times: from records of the same kind, or from a few steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ocil.settings import to_mapping
from ocil.study.estimate import measure, project


def record(plan: Any, seconds: float) -> dict[str, Any]:
    return {"method": plan.method, "settings": to_mapping(plan.settings), "seconds": seconds}


def test_runs_of_one_kind_take_as_long_as_each_other(plan: Callable[..., Any]) -> None:
    records = [record(plan(seed=s), t) for s, t in ((0, 10.0), (1, 30.0), (2, 14.0))]
    records.append(record(plan(steps=2), 50.0))
    times = project([plan(seed=9), plan(seed=8, memory=7), plan(seed=9, steps=2)], records)
    assert times == [14.0, 14.0, 50.0]


def test_an_unknown_kind_is_measured_once(plan: Callable[..., Any]) -> None:
    one, two, other = project([plan(seed=1), plan(seed=2), plan(epochs=400)], [])
    assert one == two
    assert one is not None
    assert other is not None
    assert 0 < one < other
    assert project([plan()], [{"method": "er", "settings": {}, "seconds": None}])[0] is not None


def test_unknown_data_have_no_estimate(plan: Callable[..., Any]) -> None:
    assert measure(plan(data="mine")) is None
