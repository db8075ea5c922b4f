"""Charts as small SVG elements that a page styles: colours are classes k0..k5, dashes d0..d3.

They are what a reader without scripts, a printer and the first moment of a page show.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ocil import text
from ocil.report import looks
from ocil.report.charts import MOST_NAMES, Chart, Series, shade

WIDTH = 360
SHADES = 10  # of the ramp, as classes h0..h9
MOST_CELLS = 60  # tasks; of a larger matrix every second, third ... is drawn
MOST_MARKS = 25  # on a line
# Path and width of the points of a cloud, by dash.
_SPECKS = (("h0", 2.8), ("m-1.7 0h3.4m-1.7-1.7v3.4", 0.9), ("m-1.3 1.3l2.6-2.6", 1.2), ("h3", 1.4))


@dataclass(frozen=True)
class Frame:
    """The inner rectangle of a picture."""

    chart: Chart
    left: float
    top: float
    right: float
    bottom: float

    def x(self, value: float) -> float:
        return self.left + self.chart.x.place(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - self.chart.y.place(value) * (self.bottom - self.top)

    def path(self, x: Sequence[float], y: Sequence[float]) -> str:
        points = [f"{_n(self.x(a))} {_n(self.y(b))}" for a, b in zip(x, y, strict=True)]
        return f"M{'L'.join(points)}" if points else ""


def svg(chart: Chart) -> str:
    """The chart as an <svg> element 360 wide."""
    wide = max((len(t) for t in chart.y.texts), default=0)
    left = 6.0 if chart.kind in ("rows", "cloud") else 22.0 + 6.2 * wide
    bottom = chart.height - (36.0 if chart.x.title else 6.0)
    frame = Frame(chart, left, 8.0, WIDTH - 10.0, bottom)
    draw = {"lines": _line, "rows": _row, "points": _point, "cloud": _specks}
    body = [_axes(frame)]
    body += [_heat(frame)] if chart.kind == "heat" else []
    body += [_group(frame, s, draw[chart.kind](frame, s)) for s in chart.series]
    body.append(_class_names(frame))
    title = text.html(chart.title)
    box = f'viewBox="0 0 {WIDTH} {chart.height}"'
    return f'<svg class="still" {box} role="img" aria-label="{title}">{"".join(body)}</svg>'


def swatch(look: int) -> str:
    """A look's line and mark for a legend."""
    line = f'<path class="line d{looks.dash(look)}" d="M1 7H27"/>'
    return (
        f'<svg class="swatch k{looks.colour(look)}" viewBox="0 0 28 14" aria-hidden="true">'
        f"{line}{_mark(look, 14, 7)}</svg>"
    )


def _axes(frame: Frame) -> str:
    x, y = frame.chart.x, frame.chart.y
    grid, words = [], []
    for tick, said in zip(y.ticks, y.texts, strict=True):
        at = _n(frame.y(tick))
        grid.append(f"M{_n(frame.left)} {at}H{_n(frame.right)}")
        words.append(_text(frame.left - 5, frame.y(tick) + 3.7, said, "end"))
    for tick, said in zip(x.ticks, x.texts, strict=True):
        if frame.chart.kind != "lines":
            grid.append(f"M{_n(frame.x(tick))} {_n(frame.top)}V{_n(frame.bottom)}")
        words.append(_text(frame.x(tick), frame.bottom + 14, said, "middle"))
    if x.title:
        words.append(_text((frame.left + frame.right) / 2, frame.bottom + 29, x.title, "middle"))
    if y.title:
        turn = f'transform="rotate(-90 10 {_n((frame.top + frame.bottom) / 2)})"'
        words.append(_text(10, (frame.top + frame.bottom) / 2, y.title, "middle", turn))
    lines = f'<path class="grid" d="{"".join(grid)}"/>' if frame.chart.kind != "heat" else ""
    edges = [
        f"M{_n(frame.x(at))} {_n(frame.top)}V{_n(frame.bottom)}"
        for at in frame.chart.borders
        if frame.chart.x.low <= at <= frame.chart.x.high
    ]
    return lines + (f'<path class="edge" d="{"".join(edges)}"/>' if edges else "") + "".join(words)


def _group(frame: Frame, series: Series, drawn: str) -> str:
    """A series under its colour and number, with a tooltip, and a link to its runs."""
    note = "; ".join(series.notes) if 0 < len(series.notes) <= 2 else ""
    said = text.html(f"{series.name}: {note}" if note else series.name)
    colour = f"k{looks.colour(series.look)}"
    group = f'<g class="{colour}" data-s="{series.look}"><title>{said}</title>{drawn}</g>'
    link = text.html(series.link)
    return f'<a href="{link}" tabindex="-1">{group}</a>' if link.startswith("#") else group


def _line(frame: Frame, s: Series) -> str:
    band = ""
    if len(s.low) > 1:
        x = [*s.x, *reversed(s.x)]
        band = f'<path class="band" d="{frame.path(x, [*s.high, *reversed(s.low)])}z"/>'
    line = f'<path class="line d{looks.dash(s.look)}" d="{frame.path(s.x, s.y)}"/>'
    few = len(s.x) <= MOST_MARKS
    spots = [_mark(s.look, frame.x(a), frame.y(b)) for a, b in zip(s.x, s.y, strict=True) if few]
    return band + line + "".join(spots)


def _row(frame: Frame, s: Series) -> str:
    """The name above its mark, so that long names have room on a phone."""
    at = frame.y(s.y[0])
    name = _text(frame.left, at - 8, text.plain(s.name, 56), "start")
    if not s.x:
        return name
    bar = ""
    if s.low:
        ends = [_n(frame.x(v)) for v in (s.low[0], s.high[0])]
        bar = f"M{ends[0]} {_n(at)}H{ends[1]}" + "".join(f"M{e} {_n(at - 3)}v6" for e in ends)
        bar = f'<path class="line" d="{bar}"/>'
    return name + bar + _mark(s.look, frame.x(s.x[0]), at)


def _point(frame: Frame, s: Series) -> str:
    drawn = ""
    for place, (a, b) in enumerate(zip(s.x, s.y, strict=True)):
        if s.low:
            ends = [_n(frame.y(v)) for v in (s.low[place], s.high[place])]
            drawn += f'<path class="line thin" d="M{_n(frame.x(a))} {ends[0]}V{ends[1]}"/>'
        drawn += _mark(s.look, frame.x(a), frame.y(b), "M")
    return drawn


def _specks(frame: Frame, s: Series) -> str:
    """Many points as one path; those with notes (centroids) as large marks.

    The first six looks are dots, the next six plus signs, then slashes and dashes.
    """
    places = [(frame.x(a), frame.y(b)) for a, b in zip(s.x, s.y, strict=True)]
    if s.notes:
        return f'<g class="ring">{"".join(_mark(s.look, a, b, "M") for a, b in places)}</g>'
    shape, width = _SPECKS[looks.dash(s.look)]
    path = "".join(f"M{_n(a)} {_n(b)}{shape}" for a, b in places)
    return f'<path class="specks" stroke-width="{width}" d="{path}"/>'


def _class_names(frame: Frame) -> str:
    """In a cloud of few classes the name of each in the middle of its points."""
    classes = [s for s in frame.chart.series if not s.notes and len(s.x)]
    if len(classes) > MOST_NAMES or frame.chart.kind != "cloud":
        return ""
    words = [
        _text(frame.x(median(s.x)), frame.y(median(s.y)) + 4, text.plain(s.name, 12), "middle")
        for s in classes
    ]
    return f'<g class="names">{"".join(words)}</g>'


def _heat(frame: Frame) -> str:
    """Cells of one shade as one path."""
    matrix = frame.chart.matrix
    assert matrix is not None
    every = math.ceil(len(matrix) / MOST_CELLS)
    cells: dict[int, list[str]] = {}
    for t in range(0, len(matrix), every):
        for i in range(0, len(matrix), every):
            if math.isfinite(value := float(matrix[t, i])):
                x, y = frame.x(i + 0.5), frame.y(t + 0.5)
                w, h = (frame.x(i + 0.5 + every) - x, frame.y(t + 0.5 + every) - y)
                path = f"M{_n(x)} {_n(y)}h{_n(w)}v{_n(h)}h-{_n(w)}z"
                cells.setdefault(level(value), []).append(path)
    return "".join(f'<path class="h{k}" d="{"".join(v)}"/>' for k, v in sorted(cells.items()))


def level(accuracy: float) -> int:
    """Class of the ramp for a percentage."""
    return min(int(shade(accuracy) * SHADES), SHADES - 1)


def marks() -> str:
    """The marks that all pictures of a page use: m0..m5, and larger M0..M5."""
    shapes = "".join(
        f'<path id="{letter}{n}" transform="scale({half})" d="{path}"/>'
        for letter, half in (("m", 3.2), ("M", 4.8))
        for n, (path, _) in enumerate(looks.MARKS)
    )
    return f'<svg class="marks" aria-hidden="true"><defs>{shapes}</defs></svg>'


def _mark(look: int, x: float, y: float, letter: str = "m") -> str:
    return f'<use href="#{letter}{looks.mark(look)}" x="{_n(x)}" y="{_n(y)}"/>'


def _text(x: float, y: float, said: str, anchor: str, more: str = "") -> str:
    kind = "" if anchor == "start" else f' text-anchor="{anchor}"'
    words = text.html(said)
    return f'<text x="{_n(x)}" y="{_n(y)}"{kind}{" " + more if more else ""}>{words}</text>'


def _n(value: float) -> str:
    """Tenths are finer than a screen shows."""
    return f"{value:.1f}".removesuffix(".0").replace("-0.", "-.") if math.isfinite(value) else "0"
