"""`ocil run` and `ocil resume`."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import tyro

from ocil.commands.parsing import parse, peek, say
from ocil.data import SOURCES
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.report.show import show
from ocil.run.folder import Plan
from ocil.run.loop import resume_run, start_run
from ocil.settings import checked, layered, read_toml


@dataclass(frozen=True)
class Places:
    """Where a run reads and writes; no part of its settings."""

    out: Path | None = None
    """New folder for the run; below runs/ and named by the settings unless given."""
    data_dir: Path | None = None
    """Folder that holds a folder for each data set; else $OCIL_DATA, else the user's cache."""
    config: Path | None = None
    """TOML file with settings; flags win over it."""


def run(words: list[str]) -> None:
    """Learn a stream with a method, then show the result."""
    known = ", ".join(registry.names())
    if words and words[0] in ("-h", "--help"):
        say(
            f"ocil run METHOD [settings]\n\nMethods: {known}.\n`ocil run er --help` lists settings."
        )
        return
    if not words or words[0].startswith("-"):
        raise OcilError(f"`ocil run` needs a method first. Methods: {known}.")
    plan, places = plan_from_words(words[0], words[1:])
    s = plan.settings
    name = f"{plan.method}-{s.data}-m{s.memory or 0}-s{s.seed}-{plan.job[:8]}"
    out = places.out or Path("runs") / name
    _say_done(start_run(plan, out, data_dir=places.data_dir), out)


def plan_from_words(method: str, words: list[str]) -> tuple[Plan, Places]:
    """Settings from defaults < the data set's protocol < preset < TOML < flags."""
    learner = registry.get(method)
    kind = learner.settings_type
    config = peek(words, "config")
    file = read_toml(Path(config)) if config else {}
    if file.pop("method", method) != method:
        raise OcilError(f"{config} is for another method than {method}; take out its `method`.")
    file = checked(kind, file, str(config))
    early: dict[str, Any] = {k: v for k in ("data", "preset") if (v := peek(words, k))}
    memory = peek(words, "memory")
    if memory and memory.isdigit():
        early["memory"] = max(1, int(memory))  # only to choose the preset: 0 is refused below
    elif memory == "None":
        early["memory"] = None
    data = early.get("data", file.get("data", kind.data))
    protocol = SOURCES[data].protocol if data in SOURCES else {}
    default, preset = layered(kind, protocol, learner.presets, file, early)
    whole = make_dataclass("Run", [("settings", kind), ("places", Places)], frozen=True)
    text = f"{learner.title}. {learner.paper}".strip()
    parsed = parse(whole, words, f"ocil run {method}", text, default=whole(default, Places()))
    return Plan(method, parsed.settings, preset), parsed.places


@dataclass(frozen=True)
class ResumeOptions:
    folder: tyro.conf.Positional[Path]
    """Folder of the run."""
    data_dir: Path | None = None
    """Folder that holds a folder for each data set; else $OCIL_DATA, else the user's cache."""


def resume(words: list[str]) -> None:
    """Continue a run from its newest sound checkpoint."""
    options = parse(ResumeOptions, words, "ocil resume", "Continue a run that was stopped.")
    _say_done(resume_run(options.folder, data_dir=options.data_dir), options.folder)


def _say_done(record: dict[str, Any], out: Path) -> None:
    say(*show(record), f"Record: {out / 'record.json'}. Look at it again with `ocil show {out}`.")
