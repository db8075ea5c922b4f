"""Evidence from `bench/mixture.py`: mixtures that follow streams of known mixtures.

Its record is ROOT/mixture/mixture.json. Its seeds run together, so an error is paired by seed (the
mean over the streams of all kinds) and a time by kind of stream.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ocil.report.claims import Comparison, fits
from ocil.report.evidence import Finding

NAME = "mixture/mixture.json"
MAX_BYTES = 16 * 2**20
KIND = ("separation", "dim", "batch", "angle")

_log = logging.getLogger(__name__)

Cells = Sequence[Mapping[str, Any]]


def read_streams(root: Path) -> Cells:
    """The cells of the bench's record; none where there is no sound one."""
    path = root / NAME
    if not path.is_file():
        return ()
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        cells = json.loads(path.read_bytes())["cells"]
        if not all(_is_sound(cell) for cell in cells):
            raise ValueError("a cell is wrong")
    except (OSError, ValueError, LookupError, TypeError, RecursionError) as problem:
        _log.warning("Left out: %s cannot be read (%s); make it again.", path, problem)
        return ()
    return cells


def stream_findings(comparison: Comparison, cells: Cells) -> Iterator[Finding]:
    """A finding for each pair of methods, over all kinds of streams that both have seen."""
    chosen = [cell for cell in cells if fits(cell, comparison.where)]
    values = _times if comparison.metric == "ms" else _errors
    for left in comparison.lefts():
        for right in comparison.rights():
            mine, theirs = (
                {tuple(cell[key] for key in KIND): cell for cell in chosen if fits(cell, side)}
                for side in (left, right)
            )
            both = [(mine[kind], theirs[kind]) for kind in mine if kind in theirs]
            pairs = list(values(both)) if both else []
            if pairs:
                log = comparison.scale == "log"
                found = [math.log(a) - math.log(b) if log else a - b for a, b in pairs]
                unit = "kinds of streams" if comparison.metric == "ms" else "seeds"
                about = {"data": f"streams of {len(both)} kinds"}
                yield Finding(comparison, left, right, about, found, frozenset({NAME}), unit)


def _times(both: Sequence[tuple[Any, Any]]) -> Iterator[tuple[float, float]]:
    return ((a["ms"], b["ms"]) for a, b in both if a["ms"] and b["ms"])


def _errors(both: Sequence[tuple[Any, Any]]) -> Iterator[tuple[float, float]]:
    """Error of the means, the first of the scores."""
    seeds = min(len(cell["scores"]) for pair in both for cell in pair)
    for seed in range(seeds):
        a, b = ([pair[side]["scores"][seed][0] for pair in both] for side in (0, 1))
        yield fmean(a), fmean(b)


def _is_sound(cell: Any) -> bool:
    """Whether a cell has the numbers that are used."""
    return (
        isinstance(cell["method"], str)
        and all(_is_number(cell[key]) for key in KIND)
        and (cell["ms"] is None or (_is_number(cell["ms"]) and cell["ms"] > 0))
        and all(_is_number(scores[0]) for scores in cell["scores"])
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
