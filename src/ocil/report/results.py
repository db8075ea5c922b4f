"""RESULTS.md: what was found in sentences, one table a data set, and a page for every study.

Words that people wrote stand in STUDY/README.md; every number here is derived from records.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from ocil import text
from ocil.errors import OcilError
from ocil.report import tables
from ocil.report.compare import KNOWN, alike, between, differences, differences_table, findings
from ocil.report.groups import Group, by_place, group, names, own_labels, readouts
from ocil.report.render import Cell, Table, to_markdown
from ocil.report.runs import Run

NAME = "RESULTS.md"
MAX_README = 200_000  # characters

ABOUT = """\
Made by `make results` from the records in this folder; do not edit. Accuracy is the average over
all tasks at the end of the stream and forgetting what tasks lost until then, in percent, mean ±
standard deviation (n - 1) over seeds; the interval of the mean is Student's at 95 %. Images/step
counts images through the net per batch of the stream, updates the gradient steps per batch, MB held
the memory, averaged weights and whatever else a method keeps beside its net. Seconds are as
recorded, on machines that did other work as well.
"""
STUDY = """\
Made by `make results`; do not edit. Learning is the accuracy on each task just after it was
learned, trials are the runs on held-out training images, of this method and data set, that any
setting was chosen by. The other columns are explained in [RESULTS.md](../RESULTS.md).
"""


def study_pages(root: Path, runs: Sequence[Run]) -> dict[Path, str]:
    """STUDY/RESULTS.md -> its text: STUDY/README.md, then a table a data set and memory size."""
    trials = tables.count_trials(runs)
    found = {}
    for study in sorted({run.study for run in runs} - {""}):
        title, body = introduction(root / study / "README.md")
        own = group(run for run in runs if run.study == study)
        parts = [f"# {title or text.markdown(study, 200)}\n", *([body] if body else []), STUDY]
        found[root / study / NAME] = "\n".join([*parts, *_tables(own, trials)])
    return found


def summary_page(
    root: Path,
    runs: Sequence[Run],
    counts: Callable[[str], bool],
    said: Sequence[str] = (),
    more: Sequence[str] = (),
) -> str:
    """RESULTS.md, of studies that `counts` says run methods as they are.

    `said` are further sentences of what was found, `more` further sections.
    """
    groups = group(run for run in runs if run.split == "test" and counts(run.study))
    places = by_place(groups)
    found = [*(text.markdown(s, 1000) for s in findings(runs, places)), *said]
    sections = [_section(members) for members in places]
    listed = []
    for study, count in sorted(Counter(run.study for run in runs if run.study).items()):
        title = introduction(root / study / "README.md")[0] or text.markdown(study, 200)
        listed.append(f"- [{title}]({quote(study)}/{NAME}): {count} run{'s' * (count > 1)}\n")
    parts = ["# Results\n", ABOUT, "## What was found\n", "".join(f"- {s}\n" for s in found)]
    parts += [*sections, *more]
    return "\n".join([*parts, *(["## Studies\n", "".join(listed)] if listed else [])])


def _section(members: Sequence[Group]) -> str:
    """The table of one data set, best first for each stream and memory."""
    columns = ("stream", "memory", "method", "settings", "accuracy", "95 % interval", "forgetting",
               "images/step", "updates", "MB held", "seconds", "runs")  # fmt: skip
    rows: list[list[Cell]] = []
    for stream, block in alike(members).items():
        told = own_labels(block, KNOWN)
        for g in block:
            right, lost = (tables.measured(g.summary(m)) for m in ("accuracy", "forgetting"))
            head = [stream.rpartition(", ")[0], tables.memory(g), g.method, told[id(g)], right]
            ends = between(g, "accuracy")
            rows.append([*head, ends, lost, *tables.costs(g), len(g.runs)])
    table = to_markdown(Table(columns, rows, ("stream", "method", "settings")))
    return f"## {text.markdown(members[0].data, 200)}\n\n{table}"


def _tables(groups: Sequence[Group], trials: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """One table for each data set, split and memory size; tuning comes last.

    Runs without a memory (the floor) stand in every table of their data set and split.
    """
    for here in by_place(groups):
        free = [g for g in here if g.memory is None]
        for size in sorted({g.memory for g in here if g.memory is not None}) or [None]:
            members = [g for g in here if g.memory == size and size is not None] + free
            yield f"## {_title(here[0], size)}\n"
            yield to_markdown(tables.outcome(members, trials))
            if len(readouts(members)) > 1:
                yield "Accuracy by read-out, the one that the runs report in bold:\n"
                yield to_markdown(tables.side_by_side(members))
            if pairs := [d for d in differences(members) if d.mean is not None]:
                called = dict(zip(map(id, members), names(members), strict=True))
                yield "Paired by seed, in bold where the interval leaves out 0:\n"
                yield to_markdown(differences_table(pairs, called))
            yield tables.commands(members)


def _title(g: Group, size: int | None) -> str:
    title = text.markdown(g.data, 200)
    title += ", no memory" if size is None else f", memory {size}"
    tuning = "Tuning, on images held out of the training set: "
    return tuning + title if g.split == "validation" else title


def between_markers(page: str, name: str, content: str) -> str:
    """A page with the content between <!-- NAME --> and <!-- /NAME -->, if it has these.

    >>> between_markers("a <!-- b -->old<!-- /b --> c", "b", "new")
    'a <!-- b -->\\n\\nnew\\n<!-- /b --> c'
    """
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = page.partition(start)
    _, closed, after = rest.partition(end)
    return f"{before}{start}\n\n{content}\n{end}{after}" if found and closed else page


def introduction(path: Path) -> tuple[str, str]:
    """Title and body of a study's introduction."""
    if not path.is_file():
        return "", ""
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise OcilError(f"{path} cannot be read as UTF-8 text; mend or remove it.") from None
    if len(content) > MAX_README:
        raise OcilError(f"{path} has {len(content)} characters, at most {MAX_README} fit.")
    first, _, rest = text.without_html(content.strip()).partition("\n")
    if not first.startswith("# "):
        return "", f"{first}\n{rest}".strip() + "\n"
    return first[2:].strip(), rest.strip() + "\n" if rest.strip() else ""
