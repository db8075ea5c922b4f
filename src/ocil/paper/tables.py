"""The paper's tables with our runs beside its numbers, as Markdown."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import quote

from ocil import text
from ocil.paper.cells import METRICS, Cell, Row, cells, pool, rows
from ocil.paper.notes import Note
from ocil.paper.published import protocol
from ocil.report.render import NOTHING, Table, to_markdown
from ocil.report.runs import Run
from ocil.report.tables import commands, measured

Seconds = Callable[[Cell], float | None]  # projected time of one run

SECTIONS = {
    "Tables 1 and 2: accuracy and forgetting": ("Table 1", "Table 2"),
    "Table 3: memory chosen by the centroids or at random": ("Table 3",),
    "Table 4: MNIST": ("Table 4",),
    "Table 5: several passes over each task": ("Table 5",),
}
INTRODUCTION = """\
## The paper's tables

Ours beside the numbers of Tran et al. (CVPR 2026, arXiv 2211.16780), mean ± standard deviation
over runs; the paper's are means of {runs}. A row is a configuration that answers a cell's question
in full: all training images, the paper's memory and number of tasks, batches of {batch} + {replay}.
What the paper leaves open or we do otherwise stands under settings and read-out. Runs on a cut of
the training images have no place here: they are on the pages of their studies. A cell
that was not run is made by `ocil run METHOD --data DATA --memory MEMORY --seed SEED`; its hours
are projected for one run as a dry run does, from the preset's epochs and the measured cost of a
step. For Tiny-ImageNet the paper names 20 tasks in one place and 100 in another; either counts.
"""


def paper_rows(runs: Sequence[Run]) -> dict[str, list[Row]]:
    """The rows of every section, from the runs of all studies."""
    pools = {ablation: pool(runs, ablation) for ablation in (False, True)}
    return {
        title: [row for c in cells(labels) for row in rows(c, pools[bool(c.first.settings)])]
        for title, labels in SECTIONS.items()
    }


def paper_tables(
    found: Mapping[str, Sequence[Row]],
    notes: Sequence[Note],
    runs: Mapping[str, Run],
    seconds: Seconds,
) -> Iterator[str]:
    """The sections as pieces of Markdown; `runs` are known by STUDY/JOB."""
    known = {key: protocol(key) for key in ("runs", "batch", "replay")}
    yield INTRODUCTION.format(**known)
    for title, members in found.items():
        yield f"### {title}\n"
        for data in dict.fromkeys(row.cell.first.data for row in members):
            mine = [row for row in members if row.cell.first.data == data]
            if len({row.cell.first.data for row in members}) > 1:
                yield f"#### {text.markdown(data)}\n"
            yield to_markdown(table(mine, seconds))
            yield from _explained(mine, notes, runs)
            groups = [row.group for row in mine if row.group]
            if groups:
                yield commands(groups)


def table(members: Sequence[Row], seconds: Seconds) -> Table:
    """A row per configuration; metrics that the paper does not print are left out."""
    asked = [m for m in METRICS if any(row.cell.printed(m) for row in members)]
    special = list(dict.fromkeys(key for row in members for key in row.cell.first.settings))
    pairs = [name for metric in asked for name in (metric, f"paper's {metric}")]
    columns = ("memory", "method", *special, "settings", "read-out", *pairs, "runs", "hours")
    body = []
    for row in members:
        first, g = row.cell.first, row.group
        line = [first.memory, first.method, *(first.settings[key] for key in special)]
        missing = "not run in full, only on a cut" if row.cut else "not run"
        line += [row.label, g.readout] if g else [missing, NOTHING]
        for metric in asked:
            theirs = row.cell.printed(metric)
            line += [measured(row.ours(metric)), str(theirs) if theirs else NOTHING]
        line += [len(g.runs), NOTHING] if g else [0, _hours(seconds(row.cell))]
        body.append(line)
    return Table(columns, body)


def beside(members: Sequence[Row]) -> Table:
    """For the README: our accuracy, in brackets the paper's; a column a method.

    Of several configurations of a cell the one with most runs counts, of these the best.
    """
    shown: dict[tuple[str, int], dict[str, tuple[int, float, float]]] = {}
    for row in members:
        first, ours, theirs = row.cell.first, row.ours("accuracy"), row.cell.printed("accuracy")
        if ours and theirs and not first.offline and not first.settings:
            line = shown.setdefault((first.data, first.memory), {})
            known = (ours.n, ours.mean, theirs.value)
            line[first.method] = max(known, line.get(first.method, known))
    methods = list(dict.fromkeys(method for line in shown.values() for method in line))
    body = [
        [*place, *(f"{line[m][1]:.1f} ({line[m][2]:.1f})" if m in line else NOTHING
                   for m in methods)]
        for place, line in shown.items()
    ]  # fmt: skip
    return Table(("data", "memory", *methods), body, ("data",))


def _hours(seconds: float | None) -> str:
    """A projection is worth two digits."""
    if seconds is None:
        return "not known"
    hours = seconds / 3600
    return f"≈ {hours:.0f}" if hours >= 10 else f"≈ {hours:.2g}"


def _explained(
    members: Sequence[Row], notes: Sequence[Note], runs: Mapping[str, Run]
) -> Iterator[str]:
    """A list of the differences larger than the paper's deviation, with the cause where known."""
    lines, open_ones = [], []
    for row in members:
        for metric in METRICS:
            gap = row.difference(metric)
            if gap is None:
                continue
            what = f"{row.cell} ({row.label}): {metric} {gap:+.2f}"
            told = [note for note in notes if note.explains(row, metric)]
            lines += [f"- {text.markdown(what)}. {_told(note, runs)}\n" for note in told]
            open_ones += [] if told else [f"- {text.markdown(what)}. Cause not established.\n"]
    if lines or open_ones:
        yield "Differences from the paper larger than its deviation:\n"
        yield "".join([*lines, *open_ones])


def _told(note: Note, runs: Mapping[str, Run]) -> str:
    links = ", ".join(link(name) for name in note.records)
    shown = [text.markdown(note.evidence(runs), 200)] if note.readout else []
    sentence = text.markdown(note.sentence, 1000)
    return f"{sentence} ({'; '.join([links, *shown])})"


def link(name: str) -> str:
    """A Markdown link from RESULTS.md to the record STUDY/JOB."""
    return f"[{text.markdown(name, 100)}]({quote(name)}/record.json)"
