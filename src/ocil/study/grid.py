"""From a TOML file to jobs.

    name = "er-mnist"
    [base]                      # settings that all share
    data = "mnist"
    [[grid]]                    # every combination of the lists is a job
    method = "er"
    memory = [500, 1500]
    seed = [0, 1, 2]

`trials = 30` beside the name says how many trials on held-out images chose these settings; it goes
into the records. A job is known by the sha256 of its settings, so a job that occurs twice is run
once and a finished one is never run again.
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ocil.data.sources import named
from ocil.errors import OcilError, suggest
from ocil.fields import dotted
from ocil.files import read_toml
from ocil.learners import registry
from ocil.run.folder import Plan
from ocil.settings import Settings, checked, fields_of, job_id

MAX_JOBS = 100_000
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
OWN_STREAMS = "own-streams"  # shipped as well, but no grid of runs: see `ocil.own_streams`
NOT_NAME = re.compile(r"[^a-zA-Z0-9]+")


@dataclass(frozen=True)
class Study:
    name: str
    plans: list[Plan]


def shipped() -> dict[str, Path]:
    """Studies that come with ocil, by name."""
    folder = Path(__file__).parent / "paper"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_study(name_or_path: Path, preset: str | None = None, changes: Sequence[str] = ()) -> Study:
    """Jobs of a study file, or of a shipped study by its name, in order, each once.

    With another preset, or changes such as "tau=0.5", it is another study: see `_changed`.
    """
    path, known = name_or_path, shipped()
    if path.suffix != ".toml":
        if str(path) not in known:
            names = [*known, OWN_STREAMS]
            hint = suggest(str(path), names) or f" Shipped: {', '.join(names)}."
            raise OcilError(f"There is no study '{path}'.{hint} Or give a .toml file.")
        path = known[str(path)]
    content, keys = read_toml(path), ("name", "trials", "base", "grid")
    for key in sorted(content.keys() - set(keys)):
        raise OcilError(f"Unknown key '{key}' in {path}.{suggest(key, keys)}")
    name, base = content.get("name", path.stem), content.get("base", {})
    grids, trials = content.get("grid", []), content.get("trials")
    if trials is not None and (type(trials) is not int or not 0 <= trials < 2**31):
        raise OcilError(f"The key trials of {path} must be a number of trials, such as 30.")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise OcilError(f"The name of {path} must be lower-case letters, digits and dashes.")
    if not isinstance(grids, list) or not grids:
        raise OcilError(f"{path} has no [[grid]]; add one with a method and lists of settings.")
    if not all(isinstance(table, dict) for table in (base, *grids)):
        raise OcilError(f"[base] and every [[grid]] of {path} must be tables of settings.")
    groups = {*base, *(key for grid in grids for key in grid)} - {*fields_of(Settings)}
    grids = [dotted(base, groups) | dotted(grid, groups) for grid in grids]
    if preset is not None or changes:
        given = [read_change(change) for change in changes]
        trials = None  # they were made for other settings
        name = cut("-".join([name, *filter(None, [preset]), *changes]))
        grids = [own for grid in grids if (own := _changed(grid, preset, dict(given)))]
        if not grids:
            wanted = [f"setting {key}" for key, _ in given] + [f"preset {preset}"] * bool(preset)
            raise OcilError(
                f"No method of {path} has {' and '.join(wanted)}; see `ocil methods METHOD`."
            )
    lists = [[v for v in grid.values() if isinstance(v, list)] for grid in grids]
    size = sum(math.prod(map(len, own)) for own in lists)
    if size > MAX_JOBS:
        raise OcilError(
            f"{path} describes {float(min(size, 10**300)):.3g} jobs, at most {MAX_JOBS} are read; "
            "shorten its lists."
        )
    plans: dict[str, Plan] = {}
    for grid in grids:
        for values in _combinations(grid):
            plan = replace(_plan(values, name, path), trials=trials)
            plans.setdefault(plan.job, plan)
    if not plans:
        raise OcilError(f"{path} describes no job: a list in its [[grid]] is empty; fill it.")
    return Study(name, list(plans.values()))


def cut(name: str) -> str:
    """A name of at most 64 letters; a longer one ends in what tells it from others."""
    name = NOT_NAME.sub("-", name).lower().strip("-")
    return name if len(name) <= 64 else f"{name[:55]}-{sha256(name.encode()).hexdigest()[:8]}"


def read_change(text: str, flag: str = "--set") -> tuple[str, Any]:
    """A setting and its value, written as in TOML; a word needs no quotes.

    >>> read_change("tau=0.5"), read_change("components=[1, 4]"), read_change("choice=random")
    (('tau', 0.5), ('components', [1, 4]), ('choice', 'random'))
    """
    name, given, value = text.partition("=")
    if not given or not name:
        raise OcilError(f"{flag} {text} names no value; write it as {flag} NAME=VALUE.")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, None if value == "none" else value


def _changed(grid: dict[str, Any], preset: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """A grid with another preset and other settings; empty if none of its methods has them.

    What the grid varies stays as it is; a single value gives way to that of the preset.
    """
    methods = grid.get("method", [])
    kept = []
    for method in methods if isinstance(methods, list) else [methods]:
        known = registry.info(method)
        if given.keys() <= known.fields.keys() and preset in {None, "default", *known.presets}:
            kept.append(method)
    if not kept:
        return {}
    own: set[str] = set()
    for method in kept:
        for key, settings in registry.info(method).presets.items():
            own |= {*settings} if key.split("/")[0] == preset else set()
    single = {k: v for k, v in grid.items() if isinstance(v, list) or k not in own}
    named = {} if preset is None else {"preset": preset}
    return single | given | named | {"method": kept}


def _combinations(grid: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the lists; the last list varies fastest.

    >>> [tuple(c.values()) for c in _combinations({"memory": [1, 2], "seed": [0, 1]})]
    [(1, 0), (1, 1), (2, 0), (2, 1)]
    """
    lists = [value if isinstance(value, list) else [value] for value in grid.values()]
    for values in itertools.product(*lists):
        yield dict(zip(grid, values, strict=True))


def _plan(values: dict[str, Any], study: str, path: Path) -> Plan:
    method = values.pop("method", None)
    if not isinstance(method, str):
        raise OcilError(f'A [[grid]] of {path} names no method; add `method = "er"`.')
    fields = registry.info(method).fields
    values = checked(fields, values, str(path))
    named(values.get("data", fields["data"].default))  # says so if there is no such data set
    resolved, preset = registry.resolve(method, values)
    return Plan(method, registry.make_settings(method, resolved), preset, study)


def job_of_record(record: dict[str, Any]) -> str | None:
    """The job id of a record; None for a method that is not here."""
    try:
        return job_id(registry.info(record["method"]), record["settings"])
    except (OcilError, ImportError):
        return None
