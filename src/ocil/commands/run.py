"""`ocil run` and `ocil resume`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ocil.commands.flags import explain, read_flags
from ocil.commands.parsing import Positional, parse, say
from ocil.data import SOURCES
from ocil.data.own import OwnData, looks_own
from ocil.data.sources import default_net
from ocil.errors import OcilError
from ocil.files import read_toml
from ocil.learners import registry
from ocil.learners.catalog import documented
from ocil.listeners import Listener, emit, opened
from ocil.report.show import show
from ocil.run.folder import Plan, RunFolder
from ocil.run.reading import read_record
from ocil.settings import Settings, checked, fields_of


@dataclass(frozen=True)
class RunPaths:
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
    listen: tuple[str, ...] = ()
    """Listener that gets the record, as NAME=PLACE (tensorboard=FOLDER); can be given again."""


def run(words: list[str]) -> None:
    """Learn a stream with a method, then show the result."""
    known = ", ".join(registry.names())
    if words and words[0] in ("-h", "--help"):
        say(
            f"ocil run METHOD [settings]\n\nMethods: {known}.\n"
            "`ocil run er --help` lists settings, `ocil run --like RECORD` repeats a run."
        )
        return
    if any(word.split("=")[0] == "--like" for word in words):
        parse(Like, words, "ocil run --like")()
        return
    if not words or words[0].startswith("-"):
        raise OcilError(f"`ocil run` needs a method first. Methods: {known}.")
    method, words = words[0], words[1:]
    if {"-h", "--help"} & set(words):
        _explain(method, [word for word in words if word not in ("-h", "--help")])
        return
    plan, paths, own = plan_with_data(method, words)
    listeners = opened(paths.listen)  # what they lack is said before anything is learned
    record, out = _start(plan, paths.out, paths.data_dir, own)
    _say_done(record, out, listeners)


def _explain(method: str, words: list[str]) -> None:
    known = registry.info(method)
    values, _ = registry.resolve(method, *flags_of(method, words)[0])
    shared = {name: field for name, field in known.fields.items() if name in fields_of(Settings)}
    groups: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for name, field in known.fields.items():
        if name not in shared:
            group, dot, _ = name.rpartition(".")
            title = f"Settings of {method}" + (f": {group}" if dot else "")
            groups.setdefault(title, ({}, values))[0][name] = field
    groups |= {"Settings of every method": (shared, values), "Paths": (documented(RunPaths), {})}
    say(explain(f"{known.title}. {known.paper}".strip(), f"ocil run {method} [flags]", groups))


def _start(
    plan: Plan, out: Path | None, data_dir: Path | None, own: OwnData | None
) -> tuple[dict[str, Any], Path]:
    """The record of a run, and its folder."""
    from ocil.run.loop import start_run
    from ocil.run.process import keep_freed_memory

    s = plan.settings
    name = f"{plan.method}-{s.data}-m{s.memory or 0}-s{s.seed}-{plan.job[:8]}"
    folder = out or Path("runs") / name
    keep_freed_memory()
    return start_run(plan, folder, data_dir=data_dir, own=own), folder


def plan_with_data(method: str, words: list[str]) -> tuple[Plan, RunPaths, OwnData | None]:
    """Data of your own are read once the flags are known to be right; they decide the protocol."""
    plan, paths = plan_from_words(method, words)
    if not looks_own(plan.settings.data):
        if paths.resize is not None or paths.bad_images != "fail":
            raise OcilError("--resize and --bad-images are for data of your own (--data PATH).")
        return plan, paths, None
    own = OwnData(Path(plan.settings.data), paths.resize, paths.bad_images)
    plan, paths = plan_from_words(method, words, default_net(own.dataset.train_images.shape[1:]))
    settings = dataclasses.replace(plan.settings, data=own.dataset.name)
    return dataclasses.replace(plan, settings=settings), paths, own


def plan_from_words(
    method: str, words: list[str], fitting: Mapping[str, Any] | None = None
) -> tuple[Plan, RunPaths]:
    """A plan; `fitting` stands for the protocol where the data are not named ones."""
    given, paths = flags_of(method, words)
    values, preset = registry.resolve(method, *given, fitting=fitting)
    return Plan(method, registry.make_settings(method, values), preset), paths


def flags_of(method: str, words: list[str]) -> tuple[list[dict[str, Any]], RunPaths]:
    """What is given: settings of the TOML file and of the flags, and the paths."""
    fields, own = registry.info(method).fields, fields_of(RunPaths)
    flags = read_flags(words, {**fields, **own}, f"ocil run {method}")
    paths = RunPaths(**{key: flags.pop(key) for key in own if key in flags})
    file = read_toml(paths.config) if paths.config else {}
    if file.pop("method", method) != method:
        raise OcilError(
            f"{paths.config} is for another method than {method}; take out its `method`."
        )
    return [checked(fields, file, str(paths.config)), flags], paths


@dataclass(frozen=True)
class Like:
    """Repeat the run of a record."""

    like: Path
    """Record (or folder of a finished run) whose settings are taken."""
    out: Path | None = None
    """New folder for the run; below runs/ and named by the settings unless given."""
    data: Path | None = None
    """Where data of your own are, for a record made with such."""
    resize: int | None = None
    """Data of your own: side in pixels to which pictures were scaled."""
    data_dir: Path | None = None
    """Folder that holds a folder for each data set; else $OCIL_DATA, else the user's cache."""

    def __call__(self) -> None:
        """Run what a record says and tell whether it came out the same."""
        record = read_record(self.like)
        settings = registry.make_settings(record["method"], record["settings"], str(self.like))
        own = OwnData(self.data, self.resize) if self.data else None
        if own is None and settings.data not in SOURCES:
            raise OcilError(f"{self.like} is of data of your own; say where they are with --data.")
        plan = Plan(record["method"], settings, record.get("preset") or "default")
        found, out = _start(plan, self.out, self.data_dir, own)
        say(*show(found), f"Record: {out / 'record.json'}.", _compared(record, found))


def _compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """A sentence: the same bits, the same answers, or how far apart."""
    if before.get("state_sha256") == after["state_sha256"]:
        return "It came out the same: every bit of the state is equal."
    if before["evaluations"] == after["evaluations"]:
        return "It came out the same by every evaluation; the state has other bits or names."
    was, now = (r["final_average_accuracy"] for r in (before, after))
    then, here = (r.get("processor") or "unknown" for r in (before, after))
    where = f" Processor then: {then}; now: {here}." if then != here else ""
    return f"It came out otherwise: accuracy {now:.2f} %, {was:.2f} % in the record.{where}"


@dataclass(frozen=True)
class Resume:
    """Continue a run that was stopped."""

    folder: Positional[Path]
    """Folder of the run."""
    data_dir: Path | None = None
    """Folder that holds a folder for each data set; else $OCIL_DATA, else the user's cache."""
    data: Path | None = None
    """Where data of your own are now, if they have moved since the run was started."""
    listen: tuple[str, ...] = ()
    """Listener that gets the record, as for `ocil run`."""

    def __call__(self) -> None:
        own = RunFolder(self.folder).own_data() if self.data else None
        if self.data and own is None:
            raise OcilError(f"{self.folder} is a run on a named data set; leave --data out.")
        moved = dataclasses.replace(own, path=self.data) if own and self.data else None
        listeners = opened(self.listen)
        from ocil.run.loop import resume_run
        from ocil.run.process import keep_freed_memory

        keep_freed_memory()
        record = resume_run(self.folder, data_dir=self.data_dir, own=moved)
        _say_done(record, self.folder, listeners)


def _say_done(record: dict[str, Any], out: Path, listeners: Mapping[str, Listener]) -> None:
    emit(listeners, record)
    say(*show(record), f"Record: {out / 'record.json'}. Look at it again with `ocil show {out}`.")
