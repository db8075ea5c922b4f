"""Charts hold what is drawn: means, bands and style."""

from __future__ import annotations

import itertools

import numpy as np

from ocil.report import charts, style
from ocil.report.charts import Line, Series


def line(name: str, values: list[list[float]], look: int | None = None) -> Line:
    table = np.array(values)
    return Line(name, np.arange(1.0, table.shape[1] + 1), table, look)


def test_a_curve_is_the_mean_with_one_deviation() -> None:
    chart = charts.curves("t", [line("er", [[90, 80], [92, 80]]), line("otc", [[70, 60]], look=5)])
    er, otc = chart.series
    assert er.y == [91.0, 80.0]
    np.testing.assert_allclose(er.low, [91 - 2**0.5, 80.0])
    np.testing.assert_allclose(er.high, [91 + 2**0.5, 80.0])
    assert (otc.low, otc.look, er.look) == ([], 5, 0)
    assert (chart.x.ticks, chart.x.high) == ("whole", 2.2)
    assert chart.y.low == 50.0


def test_what_is_not_percent_is_the_middle_run_between_the_least_and_the_most() -> None:
    runs = [[1.0, np.nan, np.nan], [3.0, 8.0, np.nan], [100.0, 4.0, np.nan]]
    [series] = charts.curves("t", [line("x", runs)], log=True).series
    assert series.x == [1.0, 2.0]  # the third task was measured by none
    assert series.y == [3.0, 6.0]
    assert (series.low, series.high) == ([1.0, 4.0], [100.0, 8.0])


def test_of_many_curves_only_the_main_one_has_a_band() -> None:
    lines = [line(str(n), [[n, n], [n + 1, n]]) for n in range(charts.MOST_BANDS + 1)]
    banded = [bool(s.low) for s in charts.curves("t", lines, main=3).series]
    assert banded == [n == 3 for n in range(len(lines))]
    assert all(s.low for s in charts.curves("t", lines[:2], main=3).series)


def test_rows_are_stacked_from_the_top_with_zero_in_sight() -> None:
    given = [Series("a", [5.0], [0.0], [4.0], [6.0]), Series("b", [7.0], [0.0])]
    chart = charts.rows("t", "percent points", given, zero=True)
    assert [s.y for s in chart.series] == [[0.0], [1.0]]
    assert chart.y.low > chart.y.high and not chart.y.ticks  # downwards
    assert chart.x.low < 0 < chart.x.high
    assert chart.height > charts.rows("t", "x", given[:1]).height


def test_costs_are_on_a_logarithmic_axis_only_where_they_span_much() -> None:
    def log(*costs: float) -> bool:
        return charts.points("", "s", "%", [Series("a", [c], [50.0]) for c in costs]).x.log

    assert log(10.0, 50.0)
    assert not log(10.0, 30.0)
    assert not log(0.0, 30.0)
    assert not log()


def test_looks_differ_for_the_first_72_series() -> None:
    assert len({style.parts(n) for n in range(72)}) == 72


def test_axes_hold_their_values() -> None:
    assert charts.linear("x", [0.0, 10.0], room=0) == charts.Axis("x", 0.0, 10.0)
    for values in ([5.0], [0.0], [], [float("nan")]):
        axis = charts.linear("x", values)
        assert axis.low < min([*values, axis.high]) or axis.low < axis.high
    assert (charts.percent("%", [3.0]).low, charts.percent("%", [93.0]).low) == (0.0, 80.0)
    axis = charts.logarithmic("s", [-1.0, 0.0, 30.0, 200.0])
    assert axis.log and 0 < axis.low < 30 and axis.high > 200
    assert charts.logarithmic("s", []).low > 0


def parts(colour: str) -> np.ndarray:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    yellow = (red + green) / 2
    return np.array([0.3 * red + 0.6 * green + 0.1 * blue, yellow - blue, red - green])


def test_colours_stand_apart_for_the_colour_blind_too() -> None:
    """The first six by lightness or the blue-yellow part, which most keep; the others also by
    red and green, mark or dash."""
    for one, other in itertools.combinations(style.COLOURS[:6], 2):
        assert np.abs(parts(one) - parts(other))[:2].max() > 0.1, (one, other)
    for (i, one), (j, other) in itertools.combinations(enumerate(style.COLOURS), 2):
        apart = style.parts(i)[1:] != style.parts(j)[1:]
        assert np.abs(parts(one) - parts(other)).max() > 0.1 and apart, (one, other)


def test_shades_are_between_0_and_1() -> None:
    assert charts.shade(100.0) == 1.0
    assert charts.shade(-5.0) == 0.0
    assert np.isnan(charts.shade(np.nan))
