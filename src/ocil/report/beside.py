"""Files beside the page: its tables as Markdown, LaTeX and CSV, its pictures as PDF and PNG.

Files are named by numbers and our own words, never by text from a record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ocil import text
from ocil.files import make_folder, write_atomic
from ocil.report.charts import Chart
from ocil.report.compare import differences, differences_numbers, differences_table, name_of
from ocil.report.groups import Group, Record, group, labels
from ocil.report.render import Table, to_csv, to_latex, to_markdown
from ocil.report.tables import comparison, overview, overview_numbers, overview_table

ENDINGS = {"md": "Markdown", "tex": "LaTeX", "csv": "CSV"}
_OURS = re.compile(r"(overview|readouts|differences)-\d+\.(md|tex|csv)")


def by_place(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups of each data set and split, test before validation."""
    places = sorted({(g.split, g.data) for g in groups})
    return [[g for g in groups if (g.split, g.data) == place] for place in places]


def table_names(number: int, groups: Sequence[Group]) -> list[tuple[str, str]]:
    """(title, name of its files without ending) of the tables of a section."""
    found = [("Overview", f"overview-{number + 1}")]
    if max(len(g.first["readouts"]) for g in groups) > 1:
        found.append(("Read-outs", f"readouts-{number + 1}"))
    if differences(groups):
        found.append(("Differences", f"differences-{number + 1}"))
    return found


def write_tables(records: Iterable[Record], folder: Path) -> None:
    """FOLDER/overview-1.md and so on; tables of an earlier page are removed."""
    make_folder(folder)
    kept = set()
    for number, groups in enumerate(by_place(group(records))):
        tables = _tables(groups)
        for title, name in table_names(number, groups):
            for ending, content in _written(title, groups, *tables[title]).items():
                kept.add(f"{name}.{ending}")
                write_atomic(folder / f"{name}.{ending}", content.encode())
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in kept:
            path.unlink()


def _tables(groups: list[Group]) -> dict[str, tuple[Table, Table]]:
    """title -> (for people, for programs)."""
    names = {id(g): name_of(g, label) for g, label in zip(groups, labels(groups), strict=True)}
    rows = overview(record for g in groups for record in g.records)
    reported = overview_table([row for row in rows if row.reported], full=True)
    pairs = differences(groups)
    sides = comparison(groups)
    return {
        "Overview": (reported, overview_numbers(rows)),
        "Read-outs": (sides, sides),
        "Differences": (differences_table(pairs, names), differences_numbers(pairs, names)),
    }


def _written(title: str, groups: Sequence[Group], people: Table, programs: Table) -> dict[str, str]:
    """ending -> content; the commands stand below the table, in LaTeX as comments."""
    first = groups[0]
    split = "test images" if first.split == "test" else "held-out training images (tuning)"
    about = f"{title}: {text.plain(first.data)}, {split}"
    commands = [
        f"{text.command(g.first['command'])}  # seeds {text.number_ranges(g.seeds)}" for g in groups
    ]
    indented = "".join(f"    {command}\n" for command in commands)  # code, whatever it holds
    comments = "".join(f"% {command}\n" for command in commands)
    return {
        "md": f"# {text.markdown(about)}\n\n{to_markdown(people)}\n{indented}",
        "tex": f"% {about}\n{to_latex(people)}{comments}",
        "csv": to_csv(programs),
    }


def write_figures(charts: Mapping[str, Chart], folder: Path) -> None:
    """FOLDER/NAME.pdf and FOLDER/NAME.png for every chart."""
    from ocil.report import figures

    make_folder(folder)
    for name, chart in charts.items():
        drawn = figures.draw(chart)
        for ending in ("pdf", "png"):
            figures.save(drawn, folder / f"{name}.{ending}")
