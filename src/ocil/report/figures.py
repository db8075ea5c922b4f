"""Charts as files for papers and slides: PDF and PNG, drawn with matplotlib.

Figures are objects of their own, without matplotlib's global state.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ocil import text
from ocil.errors import OcilError
from ocil.report import charts, style
from ocil.report.charts import Chart, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1b1f24"
MOST_NUMBERS = 12  # tasks; in a larger matrix the numbers would not be legible
MOST_MARKS = 25  # on a line
_STYLE = {
    "font.size": 9.0,
    "font.family": ["sans-serif"],
    "text.parse_math": False,  # a dollar in a name is a dollar
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}


def draw(chart: Chart, size: tuple[float, float] | None = None) -> Figure:
    """The chart with a legend, `size` in inches."""
    with _style():
        figure, axes = _figure(*(size or (4.4, 4.4 * chart.height / 330)))
        fill(axes, chart)
    return figure


def grid(panels: Sequence[Chart], columns: int = 3, side: float = 3.4) -> Figure:
    """Charts side by side under their titles, each `side` inches wide with its legend."""
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    legend = 0.19 * max(0, max(legend_lines(p) for p in panels) - 2)  # inches beyond the usual
    tall = side * panels[0].height / 330 + legend
    with _style():
        figure, first = _figure(side * columns, tall * rows + 0.3)
        figure.set_layout_engine("constrained")
        first.remove()
        for place, chart in enumerate(panels):
            axes = figure.add_subplot(rows, columns, place + 1)
            fill(axes, chart)
            lines = textwrap.wrap(text.plain(chart.title, 120), 40)
            axes.set_title("\n".join(lines), fontsize=8.5)
    return figure


def save(figure: Figure, path: Path | str) -> Path:
    """Write PNG or PDF, by the ending of the name; equal figures give equal files."""
    path = Path(path)
    nothing: dict[str, dict[str, Any]] = {
        ".png": {"Software": None},
        ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    if path.suffix not in nothing:
        raise OcilError(f"A figure ends in .png or .pdf, not in '{path.suffix}'; rename {path}.")
    with _style():
        try:
            figure.savefig(path, metadata=nothing[path.suffix], bbox_inches="tight")
        except OSError as problem:
            raise OcilError(f"{path} cannot be written: {problem.strerror}.") from None
    return path


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


@contextmanager
def _style() -> Iterator[None]:
    try:
        from matplotlib import rc_context
    except ImportError:
        raise OcilError(
            "Figures need matplotlib; install it with `pip install ocil[report]`."
        ) from None
    with rc_context(_STYLE), warnings.catch_warnings():  # type: ignore[arg-type]
        # a class name in a script that the font lacks is drawn as boxes in PNG
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        yield


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
        _set_ticks(getattr(axes, f"{name}axis"), axis)
        getattr(axes, f"set_{name}label")(text.plain(axis.title))
    if chart.kind in ("lines", "points"):
        axes.grid(axis="both" if chart.kind == "points" else "y", color=INK, alpha=0.12, lw=0.6)
        axes.set_axisbelow(True)
    for border in chart.borders:
        axes.axvline(border, color=INK, alpha=0.3, linewidth=0.6)


def _set_ticks(axis: Any, own: charts.Axis) -> None:
    from matplotlib import ticker

    if own.log:
        few = math.log10(own.high / own.low) < 2.5
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if few else (1,)))
        axis.set_major_formatter(ticker.EngFormatter(sep=""))
        axis.set_minor_locator(ticker.NullLocator())
    elif own.ticks:
        axis.set_major_locator(ticker.MaxNLocator(10 if own.ticks == "whole" else 6,
                                                  integer=own.ticks == "whole"))  # fmt: skip
    else:
        axis.set_major_locator(ticker.NullLocator())


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
