"""How a series looks: a number stands for a colour, a dash and a mark, the same in every figure.

Eighteen colours, the first six those that colour-blind people tell apart best (Okabe and Ito's
without yellow and black, which vanish on white and on black). Marks change from each to the next
and dashes from six to six, so that no two of 18 are told apart by their hue alone.
"""

from typing import Any

COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
    "#7a4fb5", "#a6192e", "#5b8c1a", "#8c564b", "#008b9c", "#e0457b",
    "#3f4a9e", "#6b6f76", "#1f6f4a", "#c23fc4", "#7d7a00", "#f2545b",
)  # fmt: skip
RAMP = ("#f0f5fa", "#a9cbe5", "#4a90c4", "#15578c")  # one hue, light to dark: low to high
DASHES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "D", "^", "v", "P")
EACH = 6  # looks with the same dash


def parts(look: int) -> tuple[int, int, int]:
    """Numbers of its colour, dash and mark: the first six are solid, the second six take another
    dash, and other marks than the first."""
    turn = look // EACH
    return look % len(COLOURS), turn % len(DASHES), (look + turn) % len(MARKS)


def matplotlib(look: int) -> dict[str, Any]:
    """Arguments of `Axes.plot`."""
    colour, dash, mark = parts(look)
    return {"color": COLOURS[colour], "linestyle": DASHES[dash], "marker": MARKS[mark]}
