"""`ocil show`, `ocil report`, `ocil results`: from records to tables and pages, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ocil.commands.parsing import Positional, say
from ocil.errors import OcilError
from ocil.files import write_atomic
from ocil.report.runs import Run, read_runs
from ocil.run.folder import RunFolder
from ocil.run.reading import RECORD_NAME, read_record

if TYPE_CHECKING:
    from ocil.report.render import Blocks
    from ocil.report.tables import Row


@dataclass(frozen=True)
class Show:
    """Accuracy matrix and metrics of a run, or an overview of many."""

    folder: Positional[Path]
    """Folder of a run, or one with many runs below it."""

    def __call__(self) -> None:
        from ocil.report.show import show

        run = RunFolder(self.folder)
        if run.record.exists() or self.folder.is_file():
            say(*show(read_record(self.folder)))
            return
        if run.settings.is_file():
            step, steps = run.progress()
            so_far = f"step {step} of {steps or '?'}"
            raise OcilError(f"{self.folder} is not finished ({so_far}); `{run.resume}`.")
        broken = not any(self.folder.rglob(RECORD_NAME))
        if broken and (run.events.exists() or run.checkpoints.exists()):
            raise OcilError(
                f"{self.folder} holds parts of a run without its settings.json, so it can neither "
                "be shown nor continued; copy the whole folder again, or start anew with "
                "`ocil run`."
            )
        say(*overviews(read_runs([self.folder])))


def overviews(runs: Sequence[Run]) -> Iterator[Blocks]:
    """A table for each data set and split: what the runs of each configuration came to."""
    from ocil.report.render import to_rich
    from ocil.report.tables import overview, overview_table

    for key in sorted({(run.data, run.split) for run in runs}):
        own = [run for run in runs if (run.data, run.split) == key]
        rows = [row._replace(label=_given(row)) for row in overview(own) if row.reported]
        yield to_rich(overview_table(rows), title=f"{key[0]}, {key[1]} images")


def _given(row: Row) -> str:
    """Of the settings that tell rows apart those that a command gives: defaults go with a name."""
    words = row.group.first.record["command"].split()
    parts = [part for part in row.label.split(", ") if part]
    flags = [f"--{part.partition('=')[0].replace('_', '-')}" for part in parts]
    return ", ".join(
        part
        for part, flag in zip(parts, flags, strict=True)
        if part.startswith("preset ") or {flag, flag.replace("--", "--no-", 1)} & {*words}
    )


@dataclass(frozen=True)
class Report:
    """One page of results from records, which needs no network."""

    folders: Positional[tuple[Path, ...]]
    """Folders with records below them."""
    out: Path = Path("report")
    """Folder for the page; its tables go to OUT/tables as Markdown, LaTeX and CSV."""
    figures: bool = False
    """Write every picture to OUT/figures as PDF and PNG too (about half a second each)."""

    def __call__(self) -> None:
        from ocil.report.compare import findings
        from ocil.report.groups import by_place, group
        from ocil.report.page import write_page

        if not self.folders:
            raise OcilError("Name the folder that holds the records: `ocil report runs`.")
        runs = read_runs(self.folders)
        page = write_page(runs, self.out, self.figures)
        say(*findings(runs, by_place(group(run for run in runs if run.split == "test"))))
        say(f"Page: {page}")


@dataclass(frozen=True)
class Results:
    """RESULTS.md, a page a study and PAPER.md beside the records they are made from."""

    folder: Positional[Path] = Path("results")
    """Folder that holds STUDY/JOB/record.json."""

    def __call__(self) -> None:
        from ocil.paper.summary import pages

        for path, content in pages(self.folder).items():
            write_atomic(path, content.encode())
        say(f"Written: {self.folder / 'RESULTS.md'}")
