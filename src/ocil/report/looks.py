"""How a series looks: a number stands for a colour, a dash and a mark, the same in every figure.

Six colours that colour-blind people tell apart (Okabe and Ito's without yellow and black, which
vanish on white and on black), each with a mark of its own; from the seventh series on the dash
changes too, so that no two of 72 look the same.
"""

from __future__ import annotations

from typing import Any

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
DARK = ("#3d9fe0", "#f07f33", "#26c296", "#e6a0c8", "#f2b640", "#9bd6fb")  # the same, on black
RAMP = ("#f0f5fa", "#a9cbe5", "#4a90c4", "#15578c")  # one hue, light to dark: low to high
DASHES = ("", "6 3", "6 2 1.5 2", "1.5 2.5")
_MATPLOTLIB_DASHES = ("-", "--", "-.", ":")
# Each mark as a path around the origin in units of its half width, and as matplotlib names it.
MARKS = (
    ("M-1 0a1 1 0 1 0 2 0a1 1 0 1 0-2 0z", "o"),
    ("M-.9-.9h1.8v1.8h-1.8z", "s"),
    ("M0-1.25L1.25 0L0 1.25L-1.25 0z", "D"),
    ("M0-1.2L1.15.9h-2.3z", "^"),
    ("M0 1.2L1.15-.9h-2.3z", "v"),
    ("M-1-.4h.6v-.6h.8v.6h.6v.8h-.6v.6h-.8v-.6h-.6z", "P"),
)


def colour(look: int) -> int:
    """Number of its colour."""
    return look % len(COLOURS)


def dash(look: int) -> int:
    """Number of its dash: the first six are solid."""
    return look // len(COLOURS) % len(DASHES)


def mark(look: int) -> int:
    """Number of its mark; the second six take another mark for the same colour."""
    return (look + look // len(COLOURS)) % len(MARKS)


def matplotlib(look: int) -> dict[str, Any]:
    """Arguments of `Axes.plot`."""
    return {
        "color": COLOURS[colour(look)],
        "linestyle": _MATPLOTLIB_DASHES[dash(look)],
        "marker": MARKS[mark(look)][1],
    }
