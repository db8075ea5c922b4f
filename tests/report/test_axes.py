"""Axes: ticks are round, inside the range and not too many, whatever the numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocil.report import axes

numbers = st.floats(-1e9, 1e9).filter(lambda v: v == 0 or abs(v) > 1e-6)


@given(st.lists(numbers, max_size=5))
def test_linear_ticks_lie_in_the_range_and_values_too(values: list[float]) -> None:
    axis = axes.linear("x", values)
    assert axis.low < axis.high
    assert len(axis.ticks) <= axes.MOST_TICKS + 1
    wide = axis.high - axis.low
    assert all(axis.low - 1e-6 * wide <= t <= axis.high + 1e-6 * wide for t in axis.ticks)
    assert all(-1e-9 <= axis.place(v) <= 1 + 1e-9 for v in values)


@given(st.lists(st.floats(1e-9, 1e12), max_size=5))
def test_logarithmic_ticks_lie_in_the_range_and_values_too(values: list[float]) -> None:
    axis = axes.logarithmic("x", values)
    assert 0 < axis.low < axis.high
    assert 1 <= len(axis.ticks) <= axes.MOST_TICKS
    assert all(0 <= axis.place(t) <= 1 for t in axis.ticks)
    assert all(0 <= axis.place(v) <= 1 for v in values)


def test_percent_starts_below_the_lowest_and_ends_at_100() -> None:
    assert axes.percent("%", [17.0, 99.0]).ticks == (20.0, 40.0, 60.0, 80.0, 100.0)
    assert axes.percent("%", [17.0]).low == 10.0
    assert axes.percent("%", []).low == 90.0
    assert axes.percent("%", [math.nan, 3.0]).low == 0.0


def test_a_single_value_has_room_around_it() -> None:
    axis = axes.linear("x", [5.0], room=0)
    assert axis.low < 5.0 < axis.high
    assert axis.place(5.0) == pytest.approx(0.5)


def test_many_tasks_are_not_all_named() -> None:
    assert len(axes.whole("task", 100).ticks) == 10
    assert axes.whole("task", 1).ticks == (1.0,)


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, 1.0], [0.0, -1.0]])
def test_values_that_have_no_place_do_no_harm(values: list[float]) -> None:
    for axis in (axes.linear("x", values), axes.logarithmic("x", values)):
        assert math.isfinite(axis.low) and math.isfinite(axis.high)
        assert math.isfinite(axis.place(0.0))
