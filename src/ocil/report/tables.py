"""Tables of groups of runs; `render` writes them in any of its languages."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ocil import text
from ocil.report.groups import Group, Summary, group, labels, readouts
from ocil.report.render import NOTHING, Cell, Strong, Table
from ocil.report.runs import Run

COSTS = ("backbone_images_per_step", "gradient_steps_per_batch", "bytes_held", "seconds")


class Row(NamedTuple):
    """One group and one of its read-outs."""

    group: Group
    label: str
    readout: str

    @property
    def reported(self) -> bool:
        return self.readout == self.group.readout

    def summary(self, metric: str) -> Summary | None:
        return self.group.summary(metric, self.readout)


def overview(runs: Iterable[Run]) -> list[Row]:
    """A row per group of runs and read-out, in the order of `groups.group`."""
    groups = group(runs)
    return [
        Row(g, label, readout)
        for g, label in zip(groups, labels(groups), strict=True)
        for readout in readouts([g])
    ]


def overview_table(rows: Sequence[Row], full: bool = False) -> Table:
    """For people: without columns that say nothing and, unless `full`, the less asked for."""
    several = {
        "data": len({(row.group.data, row.group.split) for row in rows}) > 1,
        "settings": any(row.label for row in rows),
        **dict.fromkeys(("learning", "anytime", "worst case", "images/step"), full),
    }
    columns: tuple[str, ...] = (
        "method", "data", "memory", "settings", "read-out", "accuracy", "forgetting", "learning",
        "anytime", "worst case", "runs", "images/step", "seconds",
    )  # fmt: skip
    shown = [name for name in columns if several.get(name, True)]
    cells: list[dict[str, Cell]] = [
        dict(zip(columns, _overview_cells(row), strict=True)) for row in rows
    ]
    return Table(tuple(shown), [[line[name] for name in shown] for line in cells])


def _overview_cells(row: Row) -> list[Cell]:
    g, accuracy = row.group, measured(row.summary("accuracy"))
    return [
        g.method,
        g.data if g.split == "test" else f"{g.data} (validation)",
        memory(g),
        row.label,
        row.readout,
        Strong(accuracy) if row.reported else accuracy,
        *(measured(row.summary(m)) for m in ("forgetting", "learning", "anytime", "worst")),
        len(g.runs),
        rounded(g.fact("backbone_images_per_step")),
        rounded(g.fact("seconds")),
    ]


def overview_numbers(rows: Sequence[Row]) -> Table:
    """For programs: every number in full, mean and deviation in columns of their own."""
    metrics = ("accuracy", "forgetting", "learning", "anytime", "worst")
    names = ("method", "data", "split", "memory", "settings", "readout")
    pairs = [f"{name}_{part}" for name in metrics for part in ("mean", "std")]
    body: list[list[Cell]] = []
    for row in rows:
        g = row.group
        line: list[Cell] = [g.method, g.data, g.split, g.memory, row.label, row.readout]
        for name in metrics:
            summary = row.summary(name)
            line += [summary.mean, summary.deviation] if summary else [None, None]
        line += [len(g.runs), text.number_ranges(g.seeds)]
        line += [fact.mean if (fact := g.fact(name)) else None for name in COSTS]
        body.append([*line, text.command(g.first.record["command"])])
    return Table((*names, *pairs, "runs", "seeds", *COSTS, "command"), body, names)


def outcome(groups: Sequence[Group], trials: Mapping[tuple[str, str], int]) -> Table:
    """A row per group: what its reported read-out gives, what a run costs, and the trials
    (method, data) that preceded it."""
    columns = (
        "method", "settings", "read-out", "accuracy", "forgetting", "learning", "runs",
        "images/step", "updates", "MB held", "seconds", "trials",
    )  # fmt: skip
    body: list[list[Cell]] = []
    for g, label in zip(groups, labels(groups, frozenset({"readout", "updates"})), strict=True):
        metrics = [measured(g.summary(name)) for name in ("accuracy", "forgetting", "learning")]
        tried = trials.get((g.method, g.data), 0)
        body.append([g.method, label, g.readout, *metrics, len(g.runs), *costs(g), tried])
    return Table(columns, body)


def side_by_side(groups: Sequence[Group]) -> Table:
    """A row per group and a column per read-out: its accuracy, the reported one strong."""
    names = readouts(groups)
    body: list[list[Cell]] = []
    for g, label in zip(groups, labels(groups, frozenset({"readout"})), strict=True):
        body.append([g.method, label, *_scores(g, names)])
    return Table(("method", "settings", *names), body)


def _scores(g: Group, names: Sequence[str]) -> list[Cell]:
    scores = [measured(g.summary("accuracy", name)) for name in names]
    return [Strong(s) if n == g.readout else s for n, s in zip(names, scores, strict=True)]


def count_trials(runs: Iterable[Run]) -> dict[tuple[str, str], int]:
    """Different runs on held-out images by (method, data)."""
    jobs = {
        (run.method, run.data, run.record.get("job") or run.record["command"])
        for run in runs
        if run.split == "validation"
    }
    return dict(Counter((method, data) for method, data, _ in jobs))


def commands(groups: Sequence[Group]) -> str:
    """A code block with the command of each group's first run and the seeds of all."""
    lines = []
    for g in groups:
        seeds = "seed" if len(g.seeds) == 1 else "seeds"
        shown = text.command(g.first.record["command"])
        lines.append(f"{shown}  # {seeds} {text.number_ranges(g.seeds)}\n")
    ticks = max([2, *(len(run) for line in lines for run in re.findall("`+", line))])
    fence = "`" * (ticks + 1)
    return f"{fence}sh\n{''.join(lines)}{fence}\n"


def costs(g: Group) -> list[str]:
    """What a run costs: images a step, gradient steps a batch, MB held, seconds."""
    return [rounded(g.fact(key, 1e-6 if key == "bytes_held" else 1.0)) for key in COSTS]


def measured(summary: Summary | None) -> str:
    return NOTHING if summary is None else str(summary)


def rounded(summary: Summary | None) -> str:
    """The mean with three digits or all in front of the point: 0.123, 12.3, 1234."""
    if summary is None:
        return NOTHING
    return f"{summary.mean:.0f}" if summary.mean >= 100 else f"{summary.mean:.3g}"


def memory(g: Group) -> str:
    return NOTHING if g.memory is None else str(g.memory)
