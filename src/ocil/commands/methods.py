"""`ocil methods`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.table import Table

from ocil.commands.parsing import Positional, say
from ocil.learners import registry
from ocil.settings import Method


@dataclass(frozen=True)
class Methods:
    """The methods, what they need and what they cost."""

    name: Positional[str] = ""
    """Tell more about one method: its presets with what they set."""
    net: Literal["mlp", "resnet18"] = "mlp"
    """Network with which the costs were measured."""

    def __call__(self) -> None:
        say(presets_of(self.name) if self.name else overview(self.net))


_COSTS = (
    "tasks: whether the method must be told where a task ends; keeps: what enters the memory. "
    "Measured by `python bench/methods.py --net {net} --write`, one gradient step a batch: images "
    "through the backbone, kilobytes held beyond net and memory, time relative to ER's. "
    "`ocil methods NAME` tells more about one of them."
)


def overview(net: str) -> Table:
    """A line for each method."""
    costs = registry.measured_costs(net)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, caption=_COSTS.format(net=net))
    table.padding, table.caption_justify = (0, 1, 0, 0), "left"
    for heading in ("id", "paper", "tasks", "keeps", "read-out"):
        table.add_column(heading, no_wrap=heading != "keeps")
    for heading in ("images", "extra\nkB", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name in registry.names():
        method, shown = registry.info(name), ("", "", "")
        if cost := costs.get(name):
            shown = (f"{cost['images']:.0f}", f"{cost['bytes'] / 1e3:,.0f}", f"{cost['time']:.2f}")
        none = method.fields["memory"].default is None
        keeps = "–" if none else method.memory_policy.split(",")[0]
        tasks = "yes" if method.needs_tasks else "no"
        table.add_row(name, _reference(method), tasks, keeps, method.readout, *shown)
    return table


def _reference(method: Method) -> str:
    """First author and year, so that the table fits 80 columns: "Shim+ 2021" is Shim and others."""
    if not method.paper:
        return "–"
    authors = method.paper.split(",")[0]
    first = authors.removesuffix(" et al.").split(" and ")[0]
    return f"{first}{'' if first == authors else '+'} {method.year}"


def presets_of(name: str) -> Table:
    """What each preset of a method sets; one of a data set refines the one without."""
    method = registry.info(name)
    year = f", {method.year}" if method.year else ""
    table = Table(title=f"{name}: {method.title} ({method.paper}{year})")
    table.add_column("preset", no_wrap=True)
    table.add_column("sets")
    table.caption = f"The memory keeps: {method.memory_policy}. Read-out: {method.readout}."
    for preset, values in method.presets.items():
        table.add_row(preset, ", ".join(f"{k} = {v}" for k, v in values.items()) or "nothing")
    return table
