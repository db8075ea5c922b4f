"""`ocil run` and `ocil resume`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any, Literal

import tyro

from ocil.commands.parsing import parse, peek, say
from ocil.data import SOURCES
from ocil.data.own import OwnData, looks_own
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.listeners import Listener, opened, tell
from ocil.report.show import show
from ocil.run.folder import Plan, RunFolder
from ocil.run.loop import resume_run, start_run
from ocil.run.process import keep_freed_memory
from ocil.samples import suited
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
    resize: int | None = None
    """Data of your own (--data PATH): side in pixels to which pictures are scaled."""
    bad_images: Literal["fail", "skip"] = "fail"
    """Data of your own: what a picture that cannot be decoded does."""
    listen: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Who hears of the finished run, as NAME=PLACE (tensorboard=FOLDER); can be given again."""


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
    plan, places, own = plan_with_data(words[0], words[1:])
    s = plan.settings
    name = f"{plan.method}-{s.data}-m{s.memory or 0}-s{s.seed}-{plan.job[:8]}"
    out = places.out or Path("runs") / name
    listeners = opened(places.listen)  # what they lack is said before anything is learned
    keep_freed_memory()
    _say_done(start_run(plan, out, data_dir=places.data_dir, own=own), out, listeners)


def plan_with_data(method: str, words: list[str]) -> tuple[Plan, Places, OwnData | None]:
    """Data of your own are read once the flags are known to be right; they decide the protocol."""
    plan, places = plan_from_words(method, words)
    if not looks_own(plan.settings.data):
        if places.resize is not None or places.bad_images != "fail":
            raise OcilError("--resize and --bad-images are for data of your own (--data PATH).")
        return plan, places, None
    own = OwnData(Path(plan.settings.data), places.resize, places.bad_images)
    plan, places = plan_from_words(method, words, suited(own.dataset.train_images.shape[1:]))
    settings = dataclasses.replace(plan.settings, data=own.dataset.name)
    return Plan(plan.method, settings, plan.preset), places, own


def plan_from_words(
    method: str, words: list[str], fitting: Mapping[str, Any] | None = None
) -> tuple[Plan, Places]:
    """Settings from defaults < the data set's protocol < preset < TOML < flags.

    `fitting` stands for the protocol where the data are not named ones.
    """
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
    protocol = SOURCES[data].protocol if data in SOURCES else fitting or {}
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
    data: Path | None = None
    """Where data of your own are now, if they have moved since the run was started."""
    listen: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Who hears of the finished run, as for `ocil run`."""


def resume(words: list[str]) -> None:
    """Continue a run from its newest sound checkpoint."""
    options = parse(ResumeOptions, words, "ocil resume", "Continue a run that was stopped.")
    own = RunFolder(options.folder).own_data() if options.data else None
    if options.data and own is None:
        raise OcilError(f"{options.folder} is a run on a named data set; leave --data out.")
    moved = dataclasses.replace(own, path=options.data) if own and options.data else None
    listeners = opened(options.listen)
    keep_freed_memory()
    done = resume_run(options.folder, data_dir=options.data_dir, own=moved)
    _say_done(done, options.folder, listeners)


def _say_done(record: dict[str, Any], out: Path, listeners: Mapping[str, Listener]) -> None:
    tell(listeners, record)
    say(*show(record), f"Record: {out / 'record.json'}. Look at it again with `ocil show {out}`.")
