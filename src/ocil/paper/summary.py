"""PAPER.md: the paper's tables and claims beside our runs; and what RESULTS.md says of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ocil.errors import OcilError
from ocil.paper.benches import read_benches
from ocil.paper.cells import METHODS, Row, runs_methods
from ocil.paper.claimtable import INTRODUCTION, Found, comparisons, found_for, overall, overview
from ocil.paper.notes import Note, check_used, read_notes
from ocil.paper.tables import beside, paper_rows, paper_tables
from ocil.paper.times import Times
from ocil.report import own_streams, results
from ocil.report.render import to_markdown
from ocil.report.runs import Run, read_runs
from ocil.study.grid import shipped

NAME = "PAPER.md"
MORE = ("digits", "offline-small")  # run methods as they are, in no cell of the paper's


def as_they_are(study: str) -> bool:
    """Whether a study's runs are results of methods: not those of shipped studies that vary one."""
    known = any(fnmatchcase(study, pattern) for pattern in (*METHODS, *MORE))
    return runs_methods(study) or study in MORE or not (known or study in shipped())


@dataclass(frozen=True)
class Paper:
    """What the runs of a results folder say of the paper."""

    runs: dict[str, Run]  # by STUDY/JOB
    tables: dict[str, list[Row]]
    notes: list[Note]
    found: list[Found]
    times: Times

    @property
    def rows(self) -> list[Row]:
        """Of all tables."""
        return [row for members in self.tables.values() for row in members]

    def page(self) -> str:
        """The text of PAPER.md."""
        tables = paper_tables(self.tables, self.notes, self.runs, self.times.seconds)
        claims = [INTRODUCTION, to_markdown(overview(self.found)), *comparisons(self.found)]
        return "\n".join(["# The paper's numbers and claims\n", *tables, *claims])

    def sentences(self) -> Iterator[str]:
        """How claims and cells came out, and what was not run."""
        counts = Counter(overall(*each).split(" ")[0].strip(":") for each in self.found)
        words = ("confirmed", "refuted", "mixed", "not settled", "untested")
        parts = [f"{n} {word}" for word in words if (n := counts[word.split(" ")[0]])]
        yield f"The paper's {len(self.found)} claims: {', '.join(parts)} (table below)."
        rows = self.rows
        run = [row for row in rows if row.ours("accuracy")]
        near = sum(row.difference("accuracy") is None for row in run)
        if run:
            yield (
                f"{len(run)} configurations answer a cell of the paper's tables in full; {near} of "
                f"them are within its deviation in accuracy ([{NAME}]({NAME}))."
            )
        yield self._not_run([row for row in rows if row.group is None])

    def _not_run(self, rows: Sequence[Row]) -> str:
        seconds = [self.times.seconds(row.cell) for row in rows]
        hours = sum(s for s in seconds if s is not None) / 3600
        unknown = seconds.count(None)
        more = f", without {unknown} whose time is not known" if unknown else ""
        return (
            f"{len(rows)} cells of the paper's tables were not run: one run of each would take "
            f"about {hours:,.0f} hours on a core like those of the records{more}."
        )

    def section(self) -> str:
        """The verdicts, for RESULTS.md."""
        rule = "Judged by paired differences of records and their 95 % intervals; the rule and all"
        rest = f"comparisons are in [{NAME}]({NAME})."
        table = to_markdown(overview(self.found, short=True))
        return f"## The paper's claims\n\n{rule}\n{rest}\n\n{table}"


def pages(root: Path) -> dict[Path, str]:
    """Path -> text: RESULTS.md, a page a study, and PAPER.md where a run answers to the paper."""
    trials = own_streams.read(root)
    try:
        runs = read_runs([root])
    except OcilError:
        if not trials:
            raise
        runs = []
    found = results.study_pages(root, runs)
    paper = judge(root, runs)
    said, more = ([*paper.sentences()], [paper.section()]) if paper else ([], [])
    found |= {root / NAME: paper.page()} if paper else {}
    if trials:
        found[root / own_streams.FOLDER / results.NAME] = own_streams.page(root, trials)
        more = [own_streams.section(trials), *more]
    page = results.summary_page(root, runs, as_they_are, said, more)
    return {**found, **_readme(root, trials, paper), root / results.NAME: page}


def _readme(
    root: Path, trials: Sequence[own_streams.Record], paper: Paper | None
) -> dict[Path, str]:
    """The tables of the README beside the folder of results, where it has markers for them."""
    path = root.resolve().parent / "README.md"
    if not path.is_file():
        return {}
    page = path.read_text(encoding="utf-8")
    parts = {own_streams.FOLDER: own_streams.for_readme(root.resolve().name, trials)}
    parts["paper"] = to_markdown(beside(paper.rows)) if paper else ""
    for name, content in parts.items():
        page = results.between_markers(page, name, content) if content else page
    return {path: page}


def judge(root: Path, runs: Sequence[Run]) -> Paper | None:
    """None where no run answers to a cell of the paper's tables."""
    named = {run.name: run for run in runs}
    tables = paper_rows(runs)
    rows = [row for members in tables.values() for row in members]
    notes = read_notes(root, named)
    check_used(notes, rows, root)
    if not any(row.group for row in rows):
        return None
    found = found_for(runs, read_benches(root))
    return Paper(named, tables, notes, found, Times(runs, root))
