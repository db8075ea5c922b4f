"""Files beside the page: its tables as Markdown, LaTeX and CSV, its pictures as PDF and PNG.

Files are named by numbers and our own words, never by text from a record.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from ocil import text
from ocil.files import make_folder, write_atomic
from ocil.report.compare import differences, differences_numbers, differences_table
from ocil.report.details import group_charts
from ocil.report.groups import Group, by_place, names
from ocil.report.panels import comparison_charts
from ocil.report.render import Table, to_csv, to_latex, to_markdown
from ocil.report.tables import overview, overview_numbers, overview_table, side_by_side

ENDINGS = {"md": "Markdown", "tex": "LaTeX", "csv": "CSV"}
_OURS = re.compile(r"(overview|readouts|differences)-\d+\.(md|tex|csv)")


def table_names(number: int, groups: Sequence[Group]) -> list[tuple[str, str]]:
    """(title, name of its files without ending) of the tables of a section."""
    found = [("Overview", f"overview-{number + 1}")]
    if max(len(g.readouts) for g in groups) > 1:
        found.append(("Read-outs", f"readouts-{number + 1}"))
    if differences(groups):
        found.append(("Differences", f"differences-{number + 1}"))
    return found


def write_tables(groups: Sequence[Group], folder: Path) -> None:
    """FOLDER/overview-1.md and so on; tables of an earlier page are removed."""
    make_folder(folder)
    kept = set()
    for number, members in enumerate(by_place(groups)):
        tables = _tables(members)
        for title, name in table_names(number, members):
            for ending, content in _written(title, members, *tables[title]).items():
                kept.add(f"{name}.{ending}")
                write_atomic(folder / f"{name}.{ending}", content.encode())
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.name not in kept:
            path.unlink()


def _tables(groups: list[Group]) -> dict[str, tuple[Table, Table]]:
    """title -> (for people, for programs)."""
    called = dict(zip(map(id, groups), names(groups), strict=True))
    rows = overview(run for g in groups for run in g.runs)
    reported = overview_table([row for row in rows if row.reported], full=True)
    pairs = differences(groups)
    sides = side_by_side(groups)
    return {
        "Overview": (reported, overview_numbers(rows)),
        "Read-outs": (sides, sides),
        "Differences": (differences_table(pairs, called), differences_numbers(pairs, called)),
    }


def _written(title: str, groups: Sequence[Group], people: Table, programs: Table) -> dict[str, str]:
    """ending -> content; the commands stand below the table, in LaTeX as comments."""
    first = groups[0]
    split = "test images" if first.split == "test" else "held-out training images (tuning)"
    about = f"{title}: {text.plain(first.data)}, {split}"
    told = [(text.command(g.first.record["command"]), text.number_ranges(g.seeds)) for g in groups]
    commands = [f"{command}  # seeds {seeds}" for command, seeds in told]
    indented = "".join(f"    {command}\n" for command in commands)  # code, whatever it holds
    comments = "".join(f"% {command}\n" for command in commands)
    return {
        "md": f"# {text.markdown(about)}\n\n{to_markdown(people)}\n{indented}",
        "tex": f"% {about}\n{to_latex(people)}{comments}",
        "csv": to_csv(programs),
    }


def write_figures(groups: Sequence[Group], folder: Path) -> None:
    """FOLDER/NAME.pdf and .png: comparisons of each data set, and the pictures of each group.

    Figures of tuning runs are not for papers.
    """
    from ocil.report import figures

    make_folder(folder)
    for number, members in enumerate(by_place([g for g in groups if g.split == "test"])):
        charts = comparison_charts(members)
        for place, g in enumerate(members):
            charts |= {f"{place}-{end}": chart for end, chart in group_charts(g).items()}
        for name, chart in charts.items():
            drawn = figures.draw(chart)
            for ending in ("pdf", "png"):
                figures.save(drawn, folder / f"{number + 1}-{name}.{ending}")
