"""RESULTS.md: the paper's tables and claims, then every study, from records and their commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ocil import text
from ocil.errors import OcilError
from ocil.report.claimtable import claims_section
from ocil.report.groups import Group, Record, group, readouts
from ocil.report.notes import check_used, read_notes
from ocil.report.paper import paper_rows, paper_tables
from ocil.report.render import to_markdown
from ocil.report.runs import Run
from ocil.report.streams import read_streams
from ocil.report.tables import commands, count_trials, outcome, side_by_side
from ocil.report.times import Times
from ocil.run.reading import find_records

_INTRODUCTION = """\
# Results

Made by `make results` from the records in this folder; do not edit. Accuracies and forgetting are
percent, mean ± standard deviation (n - 1) over seeds: the average accuracy over all tasks at the
end of the stream, the average forgetting, and under learning the accuracy on each task just after
it was learned. Images/step counts the images that go through the net per batch of the stream,
steps the gradient steps per batch, MB held the memory, averaged weights and whatever else a method
keeps beside its net. Seconds are as recorded, on machines that did other work as well. Trials are
the runs on held-out training images, of this method and data set, that any setting was chosen by.
"""
_MAX_README = 200_000  # characters


def results_markdown(root: Path | str) -> str:
    """The text of RESULTS.md for a folder laid out as STUDY/JOB/record.json.

    STUDY/README.md, if there is one, introduces the section of its study.
    """
    root = Path(root)
    found = {
        path.relative_to(root).parent.as_posix(): record for path, record in find_records(root)
    }
    studies: dict[str, list[Record]] = {}
    for name, record in found.items():
        studies.setdefault(_study(name), []).append(record)
    trials = count_trials(found.values())
    sections = [_section(root, name, studies[name], trials) for name in sorted(studies)]
    paper = _paper(root, studies, found)
    return "\n".join([_INTRODUCTION, *paper, *(sections or ["There are no records yet.\n"])])


def _study(name: str) -> str:
    """The study of the record STUDY/JOB; empty for a run that lies alone."""
    return name.split("/")[0] if "/" in name else ""


def _paper(
    root: Path, studies: Mapping[str, Sequence[Record]], found: Mapping[str, Record]
) -> list[str]:
    """The paper's tables and claims, where a run answers to one of its cells."""
    tables = paper_rows(studies)
    rows = [row for members in tables.values() for row in members]
    notes = read_notes(root, found)
    check_used(notes, rows, root)
    if not any(row.group for row in rows):
        return []
    runs = [Run(record, _study(name), name) for name, record in found.items()]
    times = Times(list(found.values()))
    claims = claims_section(runs, read_streams(root))
    return [*paper_tables(tables, notes, found, times.seconds), *claims]


def _section(
    root: Path, study: str, records: Sequence[Record], trials: Mapping[tuple[str, str], int]
) -> str:
    title, body = _readme(root / study / "README.md") if study else ("", "")
    heading = title or text.markdown(study or "single runs", 200)
    tables = _tables(group(records), trials)
    return "\n".join([f"## {heading}\n", *([body] if body else []), *tables])


def _tables(groups: Sequence[Group], trials: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """One table for each data set, split and memory size; tuning comes last.

    Runs without a memory (the floor) stand in every table of their data set and split.
    """
    places = sorted({(g.split, g.data) for g in groups})
    for split, data in places:
        here = [g for g in groups if (g.split, g.data) == (split, data)]
        free = [g for g in here if g.memory is None]
        for size in sorted({g.memory for g in here if g.memory is not None}) or [None]:
            members = [g for g in here if g.memory == size and size is not None] + free
            yield f"### {_title(data, size, split)}\n"
            yield to_markdown(outcome(members, trials))
            if len(readouts(members)) > 1:
                yield "Accuracy by read-out, the one that the runs report in bold:\n"
                yield to_markdown(side_by_side(members))
            yield commands(members)


def _title(data: str, size: int | None, split: str) -> str:
    title = text.markdown(data, 200)
    title += ", no memory" if size is None else f", memory {size}"
    tuning = "Tuning, on images held out of the training set: "
    return tuning + title if split == "validation" else title


def _readme(path: Path) -> tuple[str, str]:
    """Title and body of a study's introduction, its headings one level down."""
    if not path.is_file():
        return "", ""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise OcilError(f"{path} cannot be read as UTF-8 text; mend or remove it.") from None
    if len(content) > _MAX_README:
        raise OcilError(f"{path} has {len(content)} characters, at most {_MAX_README} fit.")
    title, lines, code = "", [], False
    for line in text.without_html(content.strip()).splitlines():
        code ^= line.lstrip().startswith(("```", "~~~"))
        if line.startswith("# ") and not (title or lines):
            title = line[2:].strip()
        else:
            lines.append("#" + line if line.startswith("#") and not code else line)
    body = "\n".join(lines).strip()
    return title, body + "\n" if body else ""
