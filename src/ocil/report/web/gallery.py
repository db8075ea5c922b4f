"""The pictures of a page: numbered for its script, named for the files beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ocil import text
from ocil.report.charts import Chart
from ocil.report.web.data import data
from ocil.report.web.svg import svg, swatch

ENDINGS = ("pdf", "png")


@dataclass
class Gallery:
    """Collects charts while the page is put together.

    With `files`, charts that have a name are offered as figures/NAME.pdf and .png too.
    """

    files: bool = False
    data: list[dict[str, Any]] = field(default_factory=list)
    named: dict[str, Chart] = field(default_factory=dict)

    def add(self, chart: Chart, note: str = "", name: str = "") -> dict[str, Any]:
        """What the template needs; `note` says how to read the picture."""
        return {
            "number": self.number(chart),
            "title": text.plain(chart.title),
            "note": text.plain(note, 400),
            "svg": markup(svg(chart)),
            "files": self.offer(chart, name),
        }

    def offer(self, chart: Chart, name: str) -> list[tuple[str, str]]:
        """Links to the files of a chart, which `write_figures` makes; none without a name."""
        if not (name and self.files):
            return []
        self.named[name] = chart
        return [(ending.upper(), f"figures/{name}.{ending}") for ending in ENDINGS]

    def number(self, chart: Chart) -> int:
        """Place of the chart's data, for the script."""
        self.data.append(data(chart))
        return len(self.data) - 1


def legend(names: list[tuple[int, str]]) -> list[dict[str, Any]]:
    """Entries for (look, name) pairs."""
    return [
        {"look": look, "name": text.plain(name), "swatch": markup(swatch(look))}
        for look, name in names
    ]


def markup(safe: str) -> Any:
    """Marks text as HTML that has been escaped where it was made."""
    from markupsafe import Markup

    return Markup(safe)
