"""One record on the terminal: accuracy matrix, metrics of every read-out, facts of the run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ocil import text
from ocil.report.render import NOTHING, Cell, Strong, Table, to_rich
from ocil.report.runs import METRICS, Record, Run

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDEST = 12  # tasks; a matrix of more does not fit a terminal


def show(record: Record) -> list[RenderableType]:
    """Rich tables of a record, in the order in which they are to be printed."""
    return [
        to_rich(matrix_table(record), f"Accuracy in percent, read-out {record['readout']}"),
        to_rich(metrics_table(record), "Percent at the end of the stream"),
        to_rich(facts_table(record), "The run"),
    ]


def task_names(record: Record, limit: int = 24) -> list[str]:
    """The class names of each task, in order of arrival."""
    names = record["class_names"]
    return [
        text.plain(", ".join(text.plain(names[label], 40) for label in labels[:20]), limit)
        for labels in record["tasks"]
    ]


def matrix_table(record: Record) -> Table:
    """Row t = after task t, column i = task i; with many tasks a line for each task instead."""
    tasks = task_names(record)
    matrix = Run(record).matrix(record["readout"])
    if len(tasks) > WIDEST:
        rows: list[list[Cell]] = [
            [str(i + 1), name, *(percent(x) for x in (matrix[i, i], matrix[-1, i]))]
            for i, name in enumerate(tasks)
        ]
        return Table(("task", "classes", "when learned", "at the end"), rows, ("classes",))
    rows = []
    for t, line in enumerate(matrix):
        cells = ["" if i > t and math.isnan(x) else percent(x) for i, x in enumerate(line)]
        cells[t] = Strong(cells[t])
        rows.append([f"task {t + 1}", *cells])
    return Table(("after", *tasks), rows, ("after",))


def metrics_table(record: Record) -> Table:
    """A row per read-out, a column per metric, the reported read-out strong."""
    rows: list[list[Cell]] = []
    for name in record["readouts"]:
        numbers = [Run(record).value(metric, name) for metric in METRICS]
        cells = [text.plain(name, 40), *map(percent, numbers)]
        rows.append([Strong(cell) if name == record["readout"] else cell for cell in cells])
    return Table(("read-out", *METRICS), rows, ("read-out",))


def facts_table(record: Record) -> Table:
    """What was run and what it cost; what a record does not hold is left out."""
    versions = ", ".join(f"{k} {v}" for k, v in sorted((record.get("versions") or {}).items()))
    commit = (record.get("commit") or "")[:12] + (" with changes" if record.get("dirty") else "")
    split = "test images" if record["split"] == "test" else "held-out training images (tuning)"
    facts = {
        "method": record["method"],
        "preset": record.get("preset"),
        "data": f"{record['data']}, evaluated on {split}",
        "memory": _with(record.get("memory"), "{:,} images"),
        "seed": str(record["seed"]),
        "steps": _with(record.get("steps"), "{:,}"),
        "gradient steps": _with(record.get("gradient_steps_per_batch"), "{} per batch"),
        "images through the net": _with(record.get("backbone_images_per_step"), "{:.4g} per step"),
        "time": _with(record.get("seconds"), "{:.1f} s learning"),
        "speed": _with(record.get("images_per_second"), "{:,.0f} images/s"),
        "state held": _with(record.get("bytes_held"), "{:,} bytes"),
        "peak memory": _with(record.get("peak_memory_mb"), "{:,.0f} MB"),
        "versions": versions,
        "commit": commit,
        "command": text.command(record["command"]),
    }
    rows: list[list[Cell]] = [[name, value] for name, value in facts.items() if value]
    return Table(("fact", "value"), rows, ("fact", "value"))


def percent(value: float | None) -> str:
    return NOTHING if value is None or math.isnan(value) else f"{value:.2f}"


def _with(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)
