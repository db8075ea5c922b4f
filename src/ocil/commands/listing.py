"""`ocil methods` and `ocil data`."""

from __future__ import annotations

from dataclasses import dataclass
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
    """The methods and their presets."""


def methods(words: list[str]) -> None:
    parse(MethodsOptions, words, "ocil methods")
    from ocil.learners import registry

    table = Table(title="Methods")
    for heading in ("id", "what it is", "paper", "year", "needs tasks", "presets"):
        table.add_column(heading)
    for name in registry.names():
        learner = registry.get(name)
        presets = ", ".join(learner.presets) or "default"
        year = str(learner.year or "")
        tasks = "yes" if learner.needs_tasks else "no"
        table.add_row(name, learner.title, learner.paper, year, tasks, presets)
    say(table)


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
