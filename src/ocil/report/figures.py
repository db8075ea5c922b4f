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
from numpy.typing import NDArray

from ocil import text
from ocil.errors import OcilError
from ocil.report import charts
from ocil.report.charts import Chart, Line
from ocil.report.matplotlib_charts import INK, MOST_NUMBERS, fill, legend_lines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLE = {
    "font.size": 9.0,
    "font.family": ["sans-serif"],
    "text.parse_math": False,  # a dollar in a name is a dollar
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.0,
    "legend.frameon": False,
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


def curve_figure(lines: Sequence[Line], size: tuple[float, float] = (4.4, 3.2)) -> Figure:
    """A_t after each task: mean over runs, band of one deviation (n - 1); size in inches."""
    return draw(charts.curves("", lines), size)


def matrix_figure(matrix: NDArray[np.float64], names: Sequence[str] | None = None) -> Figure:
    """Heat map of a (T, T) accuracy matrix; names of the tasks, else their numbers."""
    side = 1.0 + min(0.42 * len(matrix), 5.0)
    figure = draw(charts.heat("", matrix), (side + 0.3, side))
    if names is not None and len(matrix) <= MOST_NUMBERS:
        with _style():
            shown = [text.plain(name, 14) for name in names]
            slant: dict[str, Any] = (
                {"rotation": 40, "ha": "right"} if max(map(len, shown)) > 4 else {}
            )
            axes = figure.axes[0]
            axes.set_xticks(range(1, len(matrix) + 1), shown, **slant)
            axes.set_xlabel("classes of the task")
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
