"""One data set and split on the page: overview, comparisons for each memory size, groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ocil import text
from ocil.report.groups import Group, labels
from ocil.report.web.blocks import block
from ocil.report.web.cards import card
from ocil.report.web.gallery import Gallery
from ocil.report.web.grids import overview_grid, readouts_grid
from ocil.report.web.member import members


def section(
    number: int, groups: list[Group], gallery: Gallery, files: Sequence[Any]
) -> dict[str, Any]:
    """What the template shows; `files` are (title, links) of the files that hold its tables."""
    names = labels(groups, frozenset({"readout"}))  # it has a column
    known = members(groups, number)
    keys = [member.key for member in known]
    sizes = sorted({g.memory for g in groups if g.memory is not None}) or [None]
    blocks = [block(f"{number + 1}", size, known, gallery) for size in sizes]
    cards = zip(keys, groups, names, strict=True)
    return {
        "id": f"s{number}",
        "data": text.plain(groups[0].data),
        "tuning": groups[0].split == "validation",
        "runs": sum(len(g.records) for g in groups),
        "table": overview_grid(groups, names, keys),
        "readouts": readouts_grid(groups, names, keys),
        "blocks": [found for found in blocks if found],
        "cards": [card(key, g, name, gallery) for key, g, name in cards],
        "files": files,
    }
