"""Behind `ocil data list | get NAME | check NAME`: rows and reports, and how they are shown."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ocil.data.check import Report, check
from ocil.data.download import Progress, fetch
from ocil.data.places import find, require, roots
from ocil.data.sources import SOURCES, named
from ocil.errors import OcilError
from ocil.text import plain

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

__all__ = ["Row", "check", "get", "list_sources", "render_list", "render_report", "show_progress"]


@dataclass(frozen=True)
class Row:
    """One data set in the list."""

    name: str
    title: str
    classes: int
    images: int
    download_bytes: int  # 0: nothing to fetch
    licence: str
    citation: str
    home: str
    present: bool
    where: str  # the folder, "bundled", or what is missing


def list_sources(data_dir: Path | None = None) -> list[Row]:
    """Return all named data sets and where they lie on this machine."""
    rows = []
    for source in SOURCES.values():
        try:
            found = find(source, data_dir)
        except OcilError as error:  # one unreadable folder must not hide the others
            found, where = None, str(error)
        else:
            where = "-" if found is None else str(found.folder)
        if found and found.form == "bundled":
            where = "bundled"
        if found and found.missing:
            where = f"{found.folder} (lacks {', '.join(found.missing)})"
        rows.append(
            Row(
                name=source.name,
                title=source.title,
                classes=source.classes,
                images=source.train + source.test,
                download_bytes=source.size,
                licence=source.licence,
                citation=source.citation,
                home=source.home,
                present=found is not None and not found.missing,
                where=where,
            )
        )
    return rows


def get(name: str, data_dir: Path | None = None, progress: Progress | None = None) -> Path | None:
    """Fetch a data set unless it is there, and return its folder; None if it is bundled.

    It goes into `data_dir`, or else into the first of $OCIL_DATA and the user's cache that can be
    written.
    """
    source = named(name)
    if source.layout == "bundled":
        return None
    if not source.files:
        return require(source, data_dir).folder  # says which files to put where
    found = find(source, data_dir)
    if found and not found.missing:
        return found.folder
    searched = roots(data_dir)
    root = next((root for root in searched if _is_writable(root / name)), searched[-1])
    return fetch(source, root, progress)


def _is_writable(folder: Path) -> bool:
    """Tell whether files can be made in a folder, or the folder itself above what exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def render_list(rows: Sequence[Row]) -> Group:
    """Return the list for the terminal: a table of what is where, then licences and citations."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table("name", title="Data sets", title_justify="left")
    for heading in ("classes", "images", "download"):
        table.add_column(heading, justify="right")
    table.add_column("on this machine", overflow="fold")
    about = []
    for row in rows:
        size = f"{row.download_bytes / 1e6:.1f} MB" if row.download_bytes else "-"
        where = Text(plain(row.where), style="green" if row.present else "yellow")
        table.add_row(Text(row.name), str(row.classes), str(row.images), size, where)
        facts = f"  {row.title}; licence: {row.licence}\n  cite: {row.citation}\n  {row.home}"
        about.append(Text.assemble((f"{row.name}\n", "bold"), facts))
    return Group(table, *about)


def render_report(report: Report) -> Table:
    """Return the findings of `check` as a table for the terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table("", "what", "finding", title=Text(plain(f"{report.name} ({report.where})")))
    marks = {True: Text("ok", "green"), False: Text("wrong", "bold red"), None: Text("-")}
    for finding in report.findings:
        table.add_row(
            marks[finding.ok], Text(plain(finding.what)), Text(plain(finding.detail, 1000))
        )
    return table


@contextlib.contextmanager
def show_progress() -> Iterator[Progress]:
    """Give a progress callback that draws a bar for each file; silent without a terminal."""
    from rich.console import Console
    from rich.progress import DownloadColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (*Bars.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, int] = {}

        def update(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done)  # type: ignore[arg-type]

        yield update
