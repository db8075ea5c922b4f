"""Our runs in the cells of the paper's tables: which belong there, and where they differ.

A run belongs to a cell if it answers the same question: method, data, memory, number of tasks, all
training images, test images, and one pass over each task (several in the offline table). What the
paper leaves open (augmentation, gradient steps, weight average) may differ, so a cell can hold
several configurations; each is a row that says what it is.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ocil import text
from ocil.paper.published import Printed, printed, protocol, tasks_of
from ocil.report.groups import NAMED, Group, Summary, group
from ocil.report.runs import Run

# Studies that run methods as they are; all others vary them, and their runs are no method's result.
METHODS = ("table-*", "figure-through-tasks*", "er-*", "otc-*")
ABLATION = ("table-memory-choice*", "figure-centroids*")
METRICS = ("accuracy", "forgetting")
ROUNDING = 1e-9  # percent


@dataclass(frozen=True)
class Cell:
    """A place in the paper's tables with the number it prints for each metric."""

    numbers: tuple[Printed, ...]

    @property
    def first(self) -> Printed:
        return self.numbers[0]

    def printed(self, metric: str) -> Printed | None:
        return next((n for n in self.numbers if n.metric == metric), None)

    def holds(self, g: Group) -> bool:
        """Whether a group of runs answers this cell's question."""
        settings = g.settings
        return (
            self.resembles(g)
            and g.memory == self.first.memory
            and settings["limit_per_class"] is None
            and len(g.first.tasks) in tasks_of(g.data)
            and (settings["epochs"] != 1) == self.first.offline
        )

    def resembles(self, g: Group) -> bool:
        """The same method and data on test images, whatever the length and the memory."""
        first, settings = self.first, g.settings
        same = all(settings.get(key) == value for key, value in first.settings.items())
        named = (g.method, g.data, g.split) == (first.method, first.data, "test")
        return same and named and settings["order"] == "split"

    def __str__(self) -> str:
        first = self.first
        more = [f"{key}={text.setting(value)}" for key, value in first.settings.items()]
        return ", ".join([first.method, first.data, f"memory {first.memory}", *more])


@dataclass(frozen=True)
class Row:
    """A cell with one configuration that was run for it, or with none."""

    cell: Cell
    group: Group | None = None
    label: str = ""  # what the configuration is
    cut: bool = False  # nothing fits, but something was run with fewer images

    def ours(self, metric: str) -> Summary | None:
        return self.group.summary(metric) if self.group else None

    def difference(self, metric: str) -> float | None:
        """Ours minus the paper's, where it is more than its deviation (else ours, else 0)."""
        ours, theirs = self.ours(metric), self.cell.printed(metric)
        if ours is None or theirs is None:
            return None
        allowed = theirs.deviation if theirs.deviation is not None else ours.deviation
        gap = ours.mean - theirs.value
        return gap if abs(gap) > (allowed or 0.0) + ROUNDING else None


def cells(labels: Sequence[str]) -> list[Cell]:
    """The cells of some tables of the paper, each once with all its metrics, by data and memory."""
    found: dict[tuple[Any, ...], list[Printed]] = {}
    for n in printed():
        if n.label in labels:
            key = (n.method, n.data, n.memory, n.offline, *sorted(n.settings.items()))
            found.setdefault(key, []).append(n)
    order = list(dict.fromkeys(n.data for n in printed()))
    every = [Cell(tuple(numbers)) for numbers in found.values()]
    return sorted(every, key=lambda cell: (order.index(cell.first.data), cell.first.memory))


def runs_methods(study: str) -> bool:
    """Whether a study runs methods as they are.

    >>> [runs_methods(name) for name in ("table-mnist", "table-memory-choice", "ladder-mnist")]
    [True, False, False]
    """
    return not _among(study, ABLATION) and _among(study, METHODS)


def _among(study: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(study, pattern) for pattern in patterns)


def pool(runs: Iterable[Run], ablation: bool) -> list[Group]:
    """Groups of the runs of the studies of one kind; a run that two of them share is one."""
    return group(
        r for r in runs if (_among(r.study, ABLATION) if ablation else runs_methods(r.study))
    )


def rows(cell: Cell, groups: Sequence[Group]) -> list[Row]:
    """The configurations that were run for a cell, or one empty row."""
    near = [g for g in groups if cell.resembles(g)]
    whole = [g for g in near if g.settings["limit_per_class"] is None]
    mine = [g for g in near if cell.holds(g)]
    if not mine:
        return [Row(cell, cut=len(whole) < len(near))]
    return [Row(cell, g, describe(g, whole)) for g in mine]


def describe(g: Group, peers: Sequence[Group]) -> str:
    """What the paper leaves open, what is not as in the paper, and what tells g from its peers."""
    settings = g.settings
    usual = {"batch": protocol("batch"), "replay": protocol("replay"), "epochs": 1}
    usual |= {"precision": "float32", "width": 0}
    shown = {"augment", "updates"} | {key for key in usual if settings[key] != usual[key]}
    for key in set(settings) - NAMED - {"fingerprint", "readout"}:
        if any(settings[key] != p.settings.get(key) for p in peers if p.preset == g.preset):
            shown.add(key)
    named = [] if g.preset == "default" else [f"preset {g.preset}"]
    parts = [f"{text.plain(key, 40)}={text.setting(settings[key])}" for key in sorted(shown)]
    return ", ".join([*named, *parts])
