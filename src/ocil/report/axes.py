"""Where the ticks of an axis are and what they say."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MOST_TICKS = 6


@dataclass(frozen=True)
class Axis:
    """A range with ticks; `log` axes have a range above 0."""

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    texts: tuple[str, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low / 1e3))
        return (value - low) / (high - low)


def linear(title: str, values: Iterable[float], *, room: float = 0.05) -> Axis:
    """Ticks at round steps; `room` is left at both ends.

    >>> linear("x", [0.0, 10.0], room=0).ticks
    (0.0, 2.0, 4.0, 6.0, 8.0, 10.0)
    """
    known = [v for v in values if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(known), max(known)
    wide = (high - low) or abs(high) * 0.1 or 1.0
    low, high = low - room * wide, high + room * wide
    if low == high:
        low, high = low - wide / 2, high + wide / 2
    return _axis(title, low, high, _even(low, high))


def percent(title: str, values: Iterable[float]) -> Axis:
    """From ten percent or more below the lowest value to 100; starts at 0 where that is near.

    >>> percent("%", [93.0, 99.0]).ticks
    (80.0, 85.0, 90.0, 95.0, 100.0)
    """
    lowest = min((v for v in values if math.isfinite(v)), default=100.0)
    low = 10.0 * math.floor(max(min(lowest, 99.0) - 5, 0) / 10)
    return _axis(title, low, 101.0, _even(low, 100.0))


def whole(title: str, last: int) -> Axis:
    """Tasks 1 to `last`, not more than ten of them named.

    >>> whole("tasks", 3).ticks
    (1.0, 2.0, 3.0)
    """
    every = max(1, math.ceil(last / 10))
    return _axis(title, 0.8, max(last, 2) + 0.2, [float(n) for n in range(1, last + 1, every)])


def logarithmic(title: str, values: Iterable[float]) -> Axis:
    """Powers of ten, and 2 and 5 times them where the range is short; values above 0 only.

    >>> logarithmic("s", [30.0, 200.0]).texts
    ('50', '100', '200')
    """
    known = [v for v in values if math.isfinite(v) and v > 0] or [1.0, 10.0]
    low, high = min(known) / 1.25, max(known) * 1.25
    low, high = (low / 1.5, high * 1.5) if high / low < 3 else (low, high)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
    tens = [10.0**d for d in decades if low <= 10.0**d <= high]
    thinned = tens[:: max(1, math.ceil(len(tens) / MOST_TICKS))]
    return _axis(title, low, high, fine if len(fine) <= MOST_TICKS else thinned, log=True)


def short(value: float) -> str:
    """A number as an axis shows it.

    >>> short(0.25), short(2000.0), short(-1_500_000.0), short(1e-9)
    ('0.25', '2k', '-1.5M', '1e-09')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}" if abs(value) < 1e13 else f"{value:.3g}"
    return f"{value:.4g}"


def _axis(title: str, low: float, high: float, ticks: list[float], log: bool = False) -> Axis:
    return Axis(title, low, high, tuple(ticks), tuple(short(t) for t in ticks), log)


def _even(low: float, high: float) -> list[float]:
    """Multiples of a round step within the range."""
    least = (high - low) / MOST_TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]
