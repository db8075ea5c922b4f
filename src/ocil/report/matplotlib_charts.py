"""Charts drawn on matplotlib's axes, one function a kind of chart; `figures` makes the files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ocil import text
from ocil.report import charts, style
from ocil.report.charts import Chart, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#1b1f24"
MOST_NUMBERS = 12  # tasks; in a larger matrix the numbers would not be legible
MOST_MARKS = 25  # on a line


def fill(axes: Axes, chart: Chart) -> None:
    """Axes, series and, for several of them, a legend below."""
    kinds = {"lines": _lines, "rows": _rows, "points": _points, "heat": _heat, "cloud": _cloud}
    _set_axes(axes, chart)
    kinds[chart.kind](axes, chart)
    if legend_lines(chart):
        _legend(axes, chart.series)


def legend_lines(chart: Chart) -> int:
    """Lines of its legend; none where series are named where they are drawn."""
    named = chart.kind == "cloud" and len(chart.series) <= 2 * charts.MOST_NAMES
    if len(chart.series) < 2 or chart.kind == "rows" or named:
        return 0
    return math.ceil(len(chart.series) / _columns(chart.series))


def _set_axes(axes: Axes, chart: Chart) -> None:
    for axis, name in ((chart.x, "x"), (chart.y, "y")):
        if axis.log:
            getattr(axes, f"set_{name}scale")("log")
        getattr(axes, f"set_{name}lim")(axis.low, axis.high)
        getattr(axes, f"set_{name}ticks")(axis.ticks, axis.texts)
        getattr(axes, f"{name}axis").set_tick_params(which="minor", length=0, labelleft=False)
        getattr(axes, f"set_{name}label")(text.plain(axis.title))
    if chart.kind in ("lines", "points"):
        axes.grid(axis="both" if chart.kind == "points" else "y", color=INK, alpha=0.12, lw=0.6)
        axes.set_axisbelow(True)
    for border in chart.borders:
        axes.axvline(border, color=INK, alpha=0.3, linewidth=0.6)


def _lines(axes: Axes, chart: Chart) -> None:
    for s in chart.series:
        look: dict[str, Any] = style.matplotlib(s.look) | (
            {} if len(s.x) <= MOST_MARKS else {"marker": None}
        )
        axes.plot(s.x, s.y, label=_name(s), **look)
        if len(s.low) > 1:
            axes.fill_between(s.x, s.low, s.high, color=look["color"], alpha=0.18, lw=0)


def _rows(axes: Axes, chart: Chart) -> None:
    axes.spines["left"].set_visible(False)
    axes.set_yticks([s.y[0] for s in chart.series], [text.plain(s.name, 48) for s in chart.series])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.6)
    for s in chart.series:
        _with_interval(axes, s, across=True)


def _points(axes: Axes, chart: Chart) -> None:
    for s in chart.series:
        _with_interval(axes, s, across=False)


def _with_interval(axes: Axes, s: Series, across: bool) -> None:
    for place, (x, y) in enumerate(zip(s.x, s.y, strict=False)):
        ends: Any = None
        if len(s.low):
            middle = x if across else y
            ends = [[max(middle - s.low[place], 0.0)], [max(s.high[place] - middle, 0.0)]]
        look: dict[str, Any] = style.matplotlib(s.look) | {"linestyle": "none"}
        reach = {"xerr": ends} if across else {"yerr": ends}
        axes.errorbar(x, y, label=_name(s) if place == 0 else None, capsize=2.5, **reach, **look)


def _heat(axes: Axes, chart: Chart) -> None:
    assert chart.matrix is not None
    from matplotlib.colors import LinearSegmentedColormap

    ramp = LinearSegmentedColormap.from_list("ocil", style.RAMP)
    shades = np.vectorize(charts.shade, otypes=[float])(chart.matrix)
    edges = np.arange(len(shades) + 1) + 0.5
    axes.pcolormesh(edges, edges, np.ma.masked_invalid(shades), cmap=ramp, vmin=0, vmax=1)
    axes.set_aspect("equal")
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for (t, i), value in np.ndenumerate(chart.matrix):
        if len(shades) <= MOST_NUMBERS and not math.isnan(value):
            colour = "#ffffff" if charts.shade(value) > 0.6 else "#12324d"
            shown = f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"
            axes.text(i + 1, t + 1, shown, ha="center", va="center", color=colour, fontsize=7.5)


def _cloud(axes: Axes, chart: Chart) -> None:
    from matplotlib import patheffects

    for spine in axes.spines.values():
        spine.set_visible(False)
    halo = [patheffects.withStroke(linewidth=2.5, foreground="#ffffff")]
    large = {"markersize": 8.0, "markeredgecolor": "#ffffff", "zorder": 3}
    small = {"markersize": 2.2, "markeredgewidth": 0.0, "alpha": 0.75}
    for s in chart.series:
        look = style.matplotlib(s.look) | {"linestyle": "none"} | (large if s.notes else small)
        axes.plot(s.x, s.y, label=None if s.notes else _name(s), **look)  # pyright: ignore
        if not s.notes and len(chart.series) <= 2 * charts.MOST_NAMES:
            # twelve looks and small marks: the name beside its class is surer than a legend
            axes.annotate(
                text.plain(s.name, 12), (float(np.median(s.x)), float(np.median(s.y))), (0, 9),
                textcoords="offset points", ha="center", va="center", weight="bold", zorder=4,
                path_effects=halo,
            )  # fmt: skip


def _name(s: Series) -> str:
    name = text.plain(s.name, 48)
    return name if name.lstrip("_") == name != "" else f" {name}"  # a legend leaves out _names


def _legend(axes: Axes, series: Sequence[Series]) -> None:
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        borderaxespad=3.6,  # in letters: room for ticks and axis label, however tall the axes are
        ncols=_columns(series),
        handlelength=2.4,
    )


def _columns(series: Sequence[Series]) -> int:
    return 1 if max(len(s.name) for s in series) > 20 else min(len(series), 3)
