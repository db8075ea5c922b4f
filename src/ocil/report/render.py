"""A table of plain cells written as Markdown, LaTeX, CSV or on the terminal, always escaped."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ocil import text

if TYPE_CHECKING:
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
        writer.writerow([_csv(cell) for cell in row])
    return out.getvalue()


def to_rich(table: Table, title: str | None = None) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    heading = Text(text.plain(title), style="bold") if title else None
    shown = RichTable(
        title=heading,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 0 if len(table.columns) > 6 else 1),
    )
    for i, name in enumerate(table.columns):
        words = name in table.left  # words may be folded where the terminal is narrow, numbers not
        justify = "left" if words else "right"
        longest = max((len(_shown(row[i])) for row in table.rows), default=0)
        least = min(longest, 16) if words else None
        shown.add_column(
            Text(text.plain(name)),
            justify=justify,
            overflow="fold",
            no_wrap=not words,
            min_width=least,
        )
    for row in table.rows:
        style = ["bold" if isinstance(cell, Strong) else "" for cell in row]
        shown.add_row(*(Text(_shown(c), style=s) for c, s in zip(row, style, strict=True)))
    return shown


def _shown(cell: Cell) -> str:
    if cell is None:
        return NOTHING
    return f"{cell:.2f}" if isinstance(cell, float) else text.plain(cell)


def _csv(cell: Cell) -> Cell:
    return text.csv_cell(cell) if isinstance(cell, str) else cell
