"""Charts as data for the page's script, in JSON that no text can break out of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

from ocil import text
from ocil.report import looks
from ocil.report.charts import Chart, Series, shade
from ocil.report.scale import Axis

# Beside what ends a <script>, the two line ends of JavaScript that JSON allows in strings.
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def embedded(value: Any) -> str:
    r"""JSON for a <script> element.

    >>> embedded("</script>")
    '"\\u003c/script\\u003e"'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def data(chart: Chart) -> dict[str, Any]:
    """What the script draws; keys are short because there are many charts."""
    found = {
        "kind": chart.kind,
        "x": _axis(chart.x),
        "y": _axis(chart.y),
        "s": [_series(series) for series in chart.series],
        "b": [_number(v) for v in chart.borders],
    }
    if chart.matrix is not None:
        found["z"] = [[_number(shade(float(v)), 3) for v in row] for row in chart.matrix]
        found["v"] = [[_number(float(v)) for v in row] for row in chart.matrix]
    return found


def _axis(axis: Axis) -> dict[str, Any]:
    return {
        "t": axis.title,
        "r": [_number(axis.low), _number(axis.high)],
        "at": [_number(v) for v in axis.ticks],
        "say": list(axis.texts),
        "log": axis.log,
    }


def _series(series: Series) -> dict[str, Any]:
    look = series.look
    return {
        "n": text.plain(series.name),
        "l": look,
        "look": [looks.colour(look), looks.dash(look), looks.mark(look)],
        "x": _numbers(series.x),
        "y": _numbers(series.y),
        **({"a": _numbers(series.low), "c": _numbers(series.high)} if len(series.low) else {}),
        **({"g": series.link} if series.link.startswith("#") else {}),
        **({"t": [text.plain(note) for note in series.notes]} if series.notes else {}),
    }


def _numbers(values: Iterable[float]) -> list[float | int | None]:
    return [_number(value) for value in values]


def _number(value: float, digits: int = 5) -> float | int | None:
    """Rounded to what a screen can show; null where there is none."""
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
