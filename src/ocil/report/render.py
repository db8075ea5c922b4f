"""A table of plain cells written as Markdown, LaTeX, CSV or on the terminal, always escaped."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocil import text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions
    from rich.table import Table as RichTable

NOTHING = "–"  # a number that is not defined or was not measured


class Strong(str):
    """A cell to be emphasised."""


Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Unescaped cells under their headings; the columns named in `left` are aligned left."""

    columns: tuple[str, ...]
    rows: list[list[Cell]]
    left: tuple[str, ...] = ("method", "settings", "data", "read-out")


def to_markdown(table: Table) -> str:
    def shown(cell: Cell) -> str:
        safe = text.markdown(_shown(cell))
        return f"**{safe}**" if isinstance(cell, Strong) else safe

    head = [text.markdown(name) for name in table.columns]
    rule = [":--" if name in table.left else "--:" for name in table.columns]
    lines = [head, rule, *([shown(cell) for cell in row] for row in table.rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_latex(table: Table) -> str:
    r"""A booktabs tabular (\usepackage{booktabs})."""

    def shown(cell: Cell) -> str:
        safe = text.latex(_shown(cell))
        return rf"\textbf{{{safe}}}" if isinstance(cell, Strong) else safe

    align = "".join("l" if name in table.left else "r" for name in table.columns)
    head = " & ".join(text.latex(name) for name in table.columns)
    lines = [rf"\begin{{tabular}}{{{align}}}", r"\toprule", rf"{head} \\", r"\midrule"]
    lines += [" & ".join(shown(cell) for cell in row) + r" \\" for row in table.rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def to_csv(table: Table) -> str:
    """Numbers stay numbers, None is empty, text cannot become a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([text.csv_cell(name) for name in table.columns])
    for row in table.rows:
        writer.writerow([text.csv_cell(c) if isinstance(c, str) else c for c in row])
    return out.getvalue()


def to_rich(table: Table, title: str | None = None) -> Blocks:
    return Blocks(table, title)


@dataclass(frozen=True)
class Blocks:
    """A table on a terminal; where that is too narrow, its columns go into several below each
    other, each with the first column."""

    table: Table
    title: str | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RichTable]:
        for number, places in enumerate(self.places(options.max_width)):
            yield self._block(places, None if number else self.title)

    def places(self, width: int) -> list[list[int]]:
        """The columns of each block."""
        sizes = [self._least(i) + 2 * self.padding + 1 for i in range(len(self.table.columns))]
        blocks = [[0]]
        for i, size in enumerate(sizes[1:], start=1):
            if len(blocks[-1]) > 1 and sum(sizes[j] for j in blocks[-1]) + size > width:
                blocks.append([0])
            blocks[-1].append(i)
        return blocks

    @property
    def padding(self) -> int:
        return 0 if len(self.table.columns) > 6 else 1

    def _least(self, place: int) -> int:
        """Letters that a column needs: words may be folded, numbers not."""
        longest = max((len(_shown(row[place])) for row in self.table.rows), default=0)
        name = self.table.columns[place]
        return min(longest, 16) if name in self.table.left else max(longest, len(name))

    def _block(self, places: list[int], title: str | None) -> RichTable:
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        shown = RichTable(
            title=Text(text.plain(title), style="bold") if title else None,
            title_justify="left",
            box=box.SIMPLE_HEAD,
            pad_edge=False,
            padding=(0, self.padding),
        )
        for i in places:
            name = self.table.columns[i]
            words = name in self.table.left
            shown.add_column(
                Text(text.plain(name)),
                justify="left" if words else "right",
                overflow="fold",
                no_wrap=not words,
                min_width=self._least(i) if words else None,
            )
        for row in self.table.rows:
            style = ["bold" if isinstance(row[i], Strong) else "" for i in places]
            cells = (
                Text(_shown(row[i], 5000), style=s) for i, s in zip(places, style, strict=True)
            )
            shown.add_row(*cells)
        return shown


def _shown(cell: Cell, limit: int = 200) -> str:
    if cell is None:
        return NOTHING
    return f"{cell:.2f}" if isinstance(cell, float) else text.plain(cell, limit)
