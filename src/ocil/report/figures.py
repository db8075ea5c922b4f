"""Pictures of runs: accuracy matrix, curve through tasks, anytime curve.

Figures are objects of their own, without matplotlib's global state. Colours are told apart by
colour-blind people and come with a line style each; the ink of axes and text becomes
`currentColor` in SVG, so a page sets it for light and dark.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ocil.errors import OcilError
from ocil.report import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1b1f24"
# Okabe and Ito's colours without yellow and black, which vanish on white and on black.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
STYLES = ("-", "--", "-.", ":")
RAMP = ("#f0f5fa", "#a9cbe5", "#4a90c4", "#15578c")  # one hue, light to dark: low to high
MOST_NUMBERS = 12  # tasks; in a larger matrix the numbers would not be legible
_SIZE = (3.8, 2.6)  # inches
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
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "savefig.dpi": 200,
}


@dataclass(frozen=True)
class Line:
    """A curve with a row per run: x (n,), values (runs, n) in percent.

    `look` is the number of its colour and style, so that a name looks the same in every figure;
    None takes its place among the lines.
    """

    name: str
    x: NDArray[np.float64]
    values: NDArray[np.float64]
    look: int | None = None


def matrix_figure(matrix: NDArray[np.float64], names: Sequence[str] | None = None) -> Figure:
    """Heat map of a (T, T) accuracy matrix; names of the tasks, else their numbers."""
    size = len(matrix)
    with _style():
        side = 1.0 + min(0.42 * size, 5.0)
        figure, axes = _figure(side + 0.3, side)
        axes.pcolormesh(np.ma.masked_invalid(_shade(matrix)), cmap=_ramp(), vmin=0, vmax=1)
        if size <= MOST_NUMBERS:
            _write_numbers(axes, matrix)
        axes.invert_yaxis()
        axes.set_aspect("equal")
        _label_tasks(axes, size, names)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def _label_tasks(axes: Axes, size: int, names: Sequence[str] | None) -> None:
    tasks = range(0, size, 1 if size <= MOST_NUMBERS else math.ceil(size / 10))
    middles = [task + 0.5 for task in tasks]
    numbers = [str(task + 1) for task in tasks]
    shown = numbers if names is None else [text.plain(names[task], 14) for task in tasks]
    slant: dict[str, Any] = {"rotation": 40, "ha": "right"} if max(map(len, shown)) > 4 else {}
    axes.set_xticks(middles, shown, **slant)
    axes.set_yticks(middles, numbers)
    axes.set_xlabel("task" if names is None else "classes of the task")
    axes.set_ylabel("after task")
    axes.tick_params(length=0)


def _shade(accuracy: Any) -> Any:
    """Percent -> 0..1, the same in every figure; the square spreads the good end."""
    return (accuracy / 100.0) ** 2


def _write_numbers(axes: Axes, matrix: NDArray[np.float64]) -> None:
    for (t, i), value in np.ndenumerate(matrix):
        if not math.isnan(value):
            colour = "#ffffff" if _shade(value) > 0.6 else "#12324d"
            shown = f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"
            axes.text(i + 0.5, t + 0.5, shown, ha="center", va="center", color=colour, fontsize=7.5)


def curve_figure(lines: Sequence[Line], size: tuple[float, float] = _SIZE) -> Figure:
    """A_t after each task: mean over runs, band of one deviation (n - 1); size in inches."""
    with _style():
        figure, axes = _figure(*size)
        _draw(axes, lines, marker="o")
        last = max((int(line.x.max()) for line in lines if len(line.x)), default=1)
        axes.set_xticks(np.arange(1, last + 1, max(1, math.ceil(last / 10))))
        axes.set_xlabel("tasks learned")
        axes.set_ylabel("average accuracy (%)")
        _finish(axes, lines)
    return figure


def anytime_figure(lines: Sequence[Line], borders: Sequence[float] = ()) -> Figure:
    """Accuracy on the classes seen so far at every probe; thin lines where a task ends."""
    with _style():
        figure, axes = _figure(*_SIZE)
        for border in borders:
            axes.axvline(border, color=INK, alpha=0.25, linewidth=0.5)
        _draw(axes, lines)
        axes.set_xlabel("batches of the stream")
        axes.set_ylabel("accuracy so far (%)")
        _finish(axes, lines)
    return figure


def _draw(axes: Axes, lines: Sequence[Line], marker: str | None = None) -> None:
    for place, line in enumerate(lines):
        number = place if line.look is None else line.look
        colour = COLOURS[number % len(COLOURS)]
        style = STYLES[number // len(COLOURS) % len(STYLES)]
        mean = line.values.mean(axis=0)
        name = text.plain(line.name, 48)
        name = f" {name}" if name.startswith("_") else name  # a legend leaves out _names
        alone = len(line.x) == 1  # joint learning is measured at the end only
        axes.plot(line.x, mean, style, color=colour, label=name, marker="D" if alone else marker)
        if len(line.values) > 1:
            half = line.values.std(axis=0, ddof=1)
            axes.fill_between(line.x, mean - half, mean + half, color=colour, alpha=0.18, lw=0)


def _finish(axes: Axes, lines: Sequence[Line]) -> None:
    """Grid, legend below, and a percent axis that zooms in where all is high."""
    known = np.concatenate([line.values.ravel() for line in lines] or [np.zeros(1)])
    lowest = known[np.isfinite(known)].min(initial=100.0)
    axes.set_ylim(10 * math.floor(max(lowest - 5, 0) / 10), 101)
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
    axes.set_axisbelow(True)
    if len(lines) > 1:
        columns = 1 if max(len(line.name) for line in lines) > 20 else min(len(lines), 3)
        figure_height = float(axes.get_figure(root=True).get_figheight())  # type: ignore[union-attr]
        below = (0.5, -0.45 / (0.77 * figure_height))  # 0.45 inches, for ticks and axis label
        axes.legend(loc="upper center", bbox_to_anchor=below, ncols=columns, handlelength=2.4)


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


def svg(figure: Figure, salt: str) -> str:
    """The figure as an <svg> element for a page; `salt` keeps its ids apart from other figures'."""
    out = io.StringIO()
    with _style({"svg.hashsalt": salt}):
        figure.savefig(out, format="svg", transparent=True, bbox_inches="tight")
    drawn = out.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<!--.*?-->\n?|<metadata>.*?</metadata>\n?", "", drawn, flags=re.DOTALL)
    drawn = re.sub(
        r"<g id=\"[\w.]+\">", "<g>", drawn
    )  # the same in every figure, never referred to
    # as wide as the page allows, but not larger than drawn
    drawn = re.sub(r' width="([\d.]+pt)"', r' style="max-width: \1"', drawn, count=1)
    drawn = re.sub(r' height="[\d.]+pt"', "", drawn, count=1)
    return re.sub(r"(?<=[ :\"])" + INK, "currentColor", drawn)


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _ramp() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("ocil", RAMP)


@contextmanager
def _style(more: dict[str, Any] | None = None) -> Iterator[None]:
    try:
        from matplotlib import rc_context
    except ImportError:
        raise OcilError(
            "Figures need matplotlib; install it with `pip install ocil[report]`."
        ) from None
    with rc_context(_STYLE | (more or {})), warnings.catch_warnings():  # type: ignore[arg-type]
        # a class name in a script that the font lacks is drawn as boxes in PNG, and well in SVG
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        yield
