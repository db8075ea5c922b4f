"""Evidence from benches, whose records lie in ROOT/mixture.

mixture.json (`bench/mixture.py`): mixtures that follow streams of known mixtures. Its seeds run
together, so an error is paired by seed (the mean over the streams of all kinds) and a time by kind
of stream. em_versus_mmot.json (`bench/em_versus_mmot.py`): time and memory of an update, paired by
size; growth is the slope of log time over each doubling of one size, held against 1.
"""

import itertools
import json
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ocil.paper.claims import Comparison, fits
from ocil.paper.evidence import Finding

STREAMS = "mixture/mixture.json"
COSTS = "mixture/em_versus_mmot.json"
MAX_BYTES = 16 * 2**20
KIND = ("separation", "dim", "batch", "angle")
USUAL = {"B": 1024, "K": 16, "d": 256}  # the sizes at which the others of COSTS vary
PASSES = "I_EM"

_log = logging.getLogger(__name__)

Cells = Sequence[Mapping[str, Any]]
Benches = Mapping[str, Cells]  # by source of a comparison


def read_benches(root: Path) -> Benches:
    """The cells of the benches' records; none where there is no sound one."""
    costs = _read(root / COSTS, _costs)
    return {"mixture": _read(root / STREAMS, _streams), "costs": costs, "growth": costs}


def _read(path: Path, cells: Callable[[Any], list[dict[str, Any]]]) -> Cells:
    if not path.is_file():
        return ()
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError("it is too large")
        return cells(json.loads(path.read_bytes()))
    except (OSError, ValueError, LookupError, TypeError, RecursionError, AttributeError) as problem:
        _log.warning("Left out: %s cannot be read (%s); make it again.", path, problem)
        return ()


def _streams(content: Any) -> list[dict[str, Any]]:
    cells = content["cells"]
    for cell in cells:
        numbers = [*(cell[key] for key in KIND), *(scores[0] for scores in cell["scores"])]
        timed = cell["ms"] is None or (_is_number(cell["ms"]) and cell["ms"] > 0)
        if not (isinstance(cell["method"], str) and timed and all(map(_is_number, numbers))):
            raise ValueError("a cell is wrong")
    return cells


def _costs(content: Any) -> list[dict[str, Any]]:
    """A cell a method and size; updates that take no passes of EM cost the same at all of them."""
    cells = [
        {"method": str(method), "quantity": quantity, "size": size, "ms": ms, "kilobytes": held}
        for quantity, methods in content["costs"].items()
        for method, found in methods.items()
        for size, ms, held in zip(found["values"], found["ms"], found["kilobytes"], strict=True)
    ]
    numbers = [cell[key] for cell in cells for key in ("size", "ms", "kilobytes")]
    if not all(_is_number(number) and number > 0 for number in numbers):
        raise ValueError("a cell is wrong")
    passes = [cell for cell in cells if cell["quantity"] == PASSES]
    for method in {cell["method"] for cell in cells} - {cell["method"] for cell in passes}:
        mine = [cell for cell in cells if cell["method"] == method]
        usual = [cell for cell in mine if cell["size"] == USUAL.get(cell["quantity"])]
        each = {key: median(c[key] for c in usual) for key in ("ms", "kilobytes") if usual}
        cells += [cell | {"method": method} | each for cell in passes if each]
    return cells


def bench_findings(comparison: Comparison, benches: Benches) -> Iterator[Finding]:
    """A finding for each pair of methods."""
    chosen = [cell for cell in benches[comparison.source] if fits(cell, comparison.where)]
    find = {"mixture": _on_streams, "costs": _by_size, "growth": _growth}[comparison.source]
    for left in comparison.lefts():
        for right in comparison.rights():
            mine, theirs = ([cell for cell in chosen if fits(cell, side)] for side in (left, right))
            found, about, unit = find(comparison, mine, theirs)
            name = STREAMS if comparison.source == "mixture" else COSTS
            if found:
                where, names = {"data": about}, frozenset({name})
                yield Finding(comparison, left, right, where, found, names, unit)


Found = tuple[list[float], str, str]  # differences, where, what they are paired by


def _on_streams(comparison: Comparison, mine: Cells, theirs: Cells) -> Found:
    """Over all kinds of streams that both have seen."""
    by_kind = [{tuple(cell[key] for key in KIND): cell for cell in side} for side in (mine, theirs)]
    both = [(cell, by_kind[1][kind]) for kind, cell in by_kind[0].items() if kind in by_kind[1]]
    timed = comparison.metric == "ms"
    times = [(a["ms"], b["ms"]) for a, b in both if a["ms"] and b["ms"]]
    pairs = times if timed else list(_errors(both)) if both else []
    unit = "kinds of streams" if timed else "seeds"
    return _differences(comparison, pairs), f"streams of {len(both)} kinds", unit


def _by_size(comparison: Comparison, mine: Cells, theirs: Cells) -> Found:
    sizes = {(cell["quantity"], cell["size"]): cell[comparison.metric] for cell in theirs}
    pairs = [
        (cell[comparison.metric], sizes[at])
        for cell in mine
        if (at := (cell["quantity"], cell["size"])) in sizes
    ]
    return _differences(comparison, pairs), "one update at several sizes", "sizes"


def _growth(comparison: Comparison, mine: Cells, _: Cells) -> Found:
    """Slopes of log time over log size between neighbouring sizes, less 1."""
    ordered = sorted(mine, key=lambda cell: cell["size"])
    slopes = [
        math.log(b["ms"] / a["ms"]) / math.log(b["size"] / a["size"]) - 1
        for a, b in itertools.pairwise(ordered)
    ]
    return slopes, "one update at several sizes", "doublings"


def _differences(comparison: Comparison, pairs: Sequence[tuple[float, float]]) -> list[float]:
    log = comparison.scale == "log"
    return [math.log(a) - math.log(b) if log else a - b for a, b in pairs]


def _errors(both: Sequence[tuple[Any, Any]]) -> Iterator[tuple[float, float]]:
    """Error of the means, the first of the scores."""
    seeds = min(len(cell["scores"]) for pair in both for cell in pair)
    for seed in range(seeds):
        a, b = ([pair[side]["scores"][seed][0] for pair in both] for side in (0, 1))
        yield fmean(a), fmean(b)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
