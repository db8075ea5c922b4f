"""`ocil data`: list the named data sets, get one, check that one is whole."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console, Group
from rich.progress import DownloadColumn, TransferSpeedColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from ocil.commands.parsing import Positional, say
from ocil.data.check import Report, check
from ocil.data.download import Progress, get
from ocil.data.find import find
from ocil.data.sources import SOURCES, Source
from ocil.errors import OcilError
from ocil.text import plain


@dataclass(frozen=True)
class Data:
    """Data sets: list them, get one, check that one is whole."""

    action: Positional[Literal["list", "get", "check"]] = "list"
    """What to do."""
    name: Positional[str] = ""
    """Name of the data set, for get and check."""
    data_dir: Path | None = None
    """Folder that holds a folder for each data set; else $OCIL_DATA, else the user's cache."""

    def __call__(self) -> None:
        if self.action == "list":
            say(overview(self.data_dir))
            return
        if not self.name:
            raise OcilError(
                f"`ocil data {self.action}` needs the name of a data set; see the list."
            )
        if self.action == "get":
            with show_progress() as progress:
                folder = get(self.name, self.data_dir, progress)
            say(f"{self.name} is in {folder}." if folder else f"{self.name} is bundled.")
            return
        report = check(self.name, self.data_dir)
        say(report_table(report))
        if not report.ok:
            raise OcilError(
                f"{self.name} is damaged; delete the files marked wrong and get it again."
            )


def overview(data_dir: Path | None = None) -> Group:
    """A table of what is where, then licences and citations."""
    table = Table("name", title="Data sets", title_justify="left")
    for heading in ("classes", "images", "download"):
        table.add_column(heading, justify="right")
    table.add_column("on this machine", overflow="fold")
    about = []
    for source in SOURCES.values():
        size = f"{source.size / 1e6:.1f} MB" if source.size else "-"
        counts = str(source.classes), str(source.train + source.test)
        table.add_row(Text(source.name), *counts, size, _whereabouts(source, data_dir))
        facts = f"  {source.title}; licence: {source.licence}\n  cite: {source.citation}\n"
        about.append(Text.assemble((f"{source.name}\n", "bold"), f"{facts}  {source.home}"))
    return Group(table, *about)


def _whereabouts(source: Source, data_dir: Path | None) -> Text:
    """Green where the whole data set is there."""
    try:
        found = find(source, data_dir)
    except OcilError as error:  # one unreadable folder must not hide the others
        return Text(plain(error), "yellow")
    return Text(plain(found or "-"), "green" if found and not found.missing else "yellow")


def report_table(report: Report) -> Table:
    """The findings of a check."""
    table = Table("", "what", "finding", title=Text(plain(f"{report.name} ({report.where})")))
    marks = {True: Text("ok", "green"), False: Text("wrong", "bold red"), None: Text("-")}
    for finding in report.findings:
        shown = Text(plain(finding.what)), Text(plain(finding.detail, 1000))
        table.add_row(marks[finding.ok], *shown)
    return table


@contextlib.contextmanager
def show_progress() -> Iterator[Progress]:
    """Give a progress callback that draws a bar for each file; silent without a terminal."""
    console = Console(stderr=True)
    columns = (*Bars.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, int] = {}

        def update(name: str, done: int, total: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=done)  # type: ignore[arg-type]

        yield update
