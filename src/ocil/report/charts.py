"""What a figure shows, before anyone draws it.

One description serves the page, where plotly draws it, and the files for papers (`figures`), so
both show the same numbers on the same axes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

MOST_BANDS = 6  # in one picture; more would hide each other
MOST_NAMES = 20  # classes in a cloud that are named beside their points
Kind = Literal["lines", "rows", "points", "heat", "cloud"]
ROOM_OF_A_ROW = 36  # in units of the page's pictures, which are 360 wide


@dataclass(frozen=True)
class Axis:
    """A range, of a logarithmic axis above 0, and what kind of ticks it has."""

    title: str
    low: float
    high: float
    ticks: Literal["", "even", "whole", "log"] = "even"

    @property
    def log(self) -> bool:
        return self.ticks == "log"


def linear(title: str, values: Iterable[float], *, room: float = 0.05) -> Axis:
    """From the least to the largest value, with `room` at both ends."""
    known = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(known), max(known)
    wide = (high - low) or abs(high) * 0.1 or 1.0
    low, high = low - room * wide, high + room * wide
    return Axis(title, low, high) if low < high else Axis(title, low - wide / 2, high + wide / 2)


def percent(title: str, values: Iterable[float]) -> Axis:
    """From ten percent or more below the lowest value to 100; starts at 0 where that is near.

    >>> percent("%", [93.0, 99.0]).low
    80.0
    """
    lowest = min((v for v in values if math.isfinite(v)), default=100.0)
    return Axis(title, 10.0 * math.floor(max(min(lowest, 99.0) - 5, 0) / 10), 101.0)


def whole(title: str, last: int) -> Axis:
    """Tasks 1 to `last`."""
    return Axis(title, 0.8, max(last, 2) + 0.2, "whole")


def logarithmic(title: str, values: Iterable[float]) -> Axis:
    """Values above 0 only."""
    known = [v for v in values if math.isfinite(v) and v > 0] or [1.0, 10.0]
    low, high = min(known) / 1.25, max(known) * 1.25
    return Axis(title, *((low / 1.5, high * 1.5) if high / low < 3 else (low, high)), "log")


@dataclass(frozen=True)
class Line:
    """A curve with a row per run: x (n,), values (runs, n).

    `look` is the number of its colour, dash and mark, so that a name looks the same in every
    figure; None takes its place among the lines.
    """

    name: str
    x: NDArray[np.float64]
    values: NDArray[np.float64]
    look: int | None = None


@dataclass(frozen=True)
class Series:
    """Points with the ends of their intervals (of y; in rows of x), and a note for each."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    look: int = 0
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Chart:
    """`borders` are thin lines across: of x in lines and rows. `height` is for a width of 360."""

    kind: Kind
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    borders: tuple[float, ...] = ()
    height: int = 240
    matrix: NDArray[np.float64] | None = None  # of a heat map: (T, T) in percent


def curves(
    title: str,
    lines: Sequence[Line],
    x: Axis | None = None,
    y_title: str = "average accuracy (%)",
    *,
    log: bool | None = None,
    borders: Iterable[float] = (),
    main: int | None = None,
) -> Chart:
    """Mean over the runs with a band of one deviation (n - 1); x counts tasks unless it is given.

    Where there are many lines, only the one with the look `main` has a band. With `log` given,
    values are not percent: the middle run of all, banded by the least and most.
    """
    found = tuple(
        _averaged(line, place if line.look is None else line.look, is_percent=log is None)
        for place, line in enumerate(lines)
    )
    if len(found) > MOST_BANDS:
        found = tuple(s if s.look == main else replace(s, low=(), high=()) for s in found)
    shown = [v for s in found for part in (s.y, s.low, s.high) for v in part]
    makers = {None: percent, True: logarithmic, False: linear}
    last = max((int(line.x.max()) for line in lines if len(line.x)), default=1)
    across = x or whole("tasks learned", last)
    return Chart("lines", title, across, makers[log](y_title, shown), found, tuple(borders))


def _averaged(line: Line, look: int, is_percent: bool) -> Series:
    known = np.isfinite(line.values).any(axis=0) if line.values.size else np.zeros(0, bool)
    x, values = line.x[known], line.values[:, known]
    if is_percent:
        middle = values.mean(axis=0)
        half = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(len(x))
        low, high = middle - half, middle + half
    else:
        middle, low, high = (f(values, axis=0) for f in (np.nanmedian, np.nanmin, np.nanmax))
    band = (low.tolist(), high.tolist()) if len(values) > 1 else ([], [])
    return Series(line.name, x.tolist(), middle.tolist(), *band, look)


def rows(title: str, x_title: str, series: Sequence[Series], zero: bool = False) -> Chart:
    """One row for each series, from the top; its only x with an interval. `zero` draws a line."""
    placed = [replace(s, y=[float(place)]) for place, s in enumerate(series)]
    ends = [v for s in placed for part in (s.x, s.low, s.high) for v in part]
    across = linear(x_title, [*ends, 0.0] if zero else ends)
    down = Axis("", max(len(placed), 1) - 0.6, -0.6, "")
    height = 44 + ROOM_OF_A_ROW * max(len(placed), 1)
    return Chart("rows", title, across, down, tuple(placed), (0.0,) if zero else (), height)


def points(title: str, x_title: str, y_title: str, series: Sequence[Series]) -> Chart:
    """A mark for each series, over a logarithmic x where it spans more than a factor of four."""
    x = [v for s in series for v in s.x]
    wide = min(x, default=1.0) > 0 and max(x, default=1.0) > 4 * min(x, default=1.0)
    across = (logarithmic if wide else linear)(x_title, x)
    ends = [v for s in series for part in (s.y, s.low, s.high) for v in part]
    return Chart("points", title, across, linear(y_title, ends), tuple(series))


def heat(title: str, matrix: NDArray[np.float64]) -> Chart:
    """An accuracy matrix (T, T) in percent; row t = after task t."""
    last = len(matrix)
    x = Axis("task", 0.5, last + 0.5, "whole")
    y = Axis("after task", last + 0.5, 0.5, "whole")
    return Chart("heat", title, x, y, (), height=330, matrix=matrix)


def cloud(title: str, series: Sequence[Series]) -> Chart:
    """Points in a plane whose axes mean nothing; a series with `notes` is drawn large."""
    x, y = ([v for s in series for v in part(s)] for part in (lambda s: s.x, lambda s: s.y))
    across, up = (replace(linear("", values, room=0.03), ticks="") for values in (x, y))
    return Chart("cloud", title, across, up, tuple(series), height=330)


def shade(accuracy: float) -> float:
    """Percent -> 0..1 of the ramp, the same in every figure; the square spreads the good end."""
    return math.nan if math.isnan(accuracy) else (min(max(accuracy, 0.0), 100.0) / 100.0) ** 2
