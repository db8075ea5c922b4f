"""`ocil methods` and `ocil data`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

import tyro
from rich.table import Table

from ocil.commands.parsing import parse, say
from ocil.data import command
from ocil.data.check import check
from ocil.errors import OcilError


@dataclass(frozen=True)
class MethodsOptions:
    """The methods, what they need and what they cost."""

    net: Literal["mlp", "resnet18"] = "mlp"
    """Network with which the costs were measured."""


def methods(words: list[str]) -> None:
    options = parse(MethodsOptions, words, "ocil methods")
    from ocil.learners import registry

    costs = measured_costs(options.net)
    table = Table(title="Methods", caption=_COSTS.format(net=options.net), caption_justify="left")
    for heading in ("id", "paper", "year", "needs tasks", "memory keeps", "read-out"):
        table.add_column(heading)
    for heading in ("images/step", "extra bytes", "time/ER"):
        table.add_column(heading, justify="right")
    table.add_column("presets")
    for name in registry.names():
        learner = registry.get(name)
        presets = ", ".join(p for p in learner.presets if "/" not in p) or "default"
        cost = costs.get(name)
        shown = ("", "", "")
        if cost:
            shown = (f"{cost['images']:.0f}", f"{cost['bytes']:,.0f}", f"{cost['time']:.2f}")
        none = learner.settings_type().memory is None
        table.add_row(
            name,
            learner.paper or learner.title,
            str(learner.year or ""),
            "yes" if learner.needs_tasks else "no",
            "has none" if none else learner.keeps,
            learner.own_readout,
            *shown,
            presets,
        )
    say(table)


_COSTS = (
    "Measured by `python bench/methods.py --net {net} --write`: images through the backbone and "
    "time of a batch at one gradient step, relative to ER's; bytes held beyond net and memory."
)


def measured_costs(net: str) -> dict[str, dict[str, float]]:
    """Cost of a step by method, as shipped with the package."""
    found = files("ocil.learners").joinpath("costs.json")
    return json.loads(found.read_text(encoding="utf-8")).get(net, {}) if found.is_file() else {}


@dataclass(frozen=True)
class DataOptions:
    """Data sets: list them, get one, check that one is whole."""

    action: tyro.conf.Positional[Literal["list", "get", "check"]] = "list"
    """What to do."""
    name: tyro.conf.Positional[str] = ""
    """Name of the data set, for get and check."""
    data_dir: Path | None = None
    """Folder that holds a folder for each data set; else $OCIL_DATA, else the user's cache."""


def data(words: list[str]) -> None:
    options = parse(DataOptions, words, "ocil data")
    if options.action == "list":
        say(command.render_list(command.list_sources(options.data_dir)))
        return
    if not options.name:
        raise OcilError(f"`ocil data {options.action}` needs the name of a data set; see the list.")
    if options.action == "get":
        with command.show_progress() as progress:
            folder = command.get(options.name, options.data_dir, progress)
        say(f"{options.name} is in {folder}." if folder else f"{options.name} is bundled.")
        return
    report = check(options.name, options.data_dir)
    say(command.render_report(report))
    if not report.ok:
        raise OcilError(
            f"{options.name} is damaged; delete the files marked wrong and get it again."
        )
