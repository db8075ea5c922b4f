"""Where a study's jobs are carried out: `--on local`, `ray`, `ray:ADDRESS` or `slurm`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ocil.errors import OcilError, suggest
from ocil.study.grid import read_change
from ocil.study.jobs import Runner

PLACES = ("local", "ray", "slurm")


def check_place(on: str, workers: int | None, per_gpu: int = 1) -> None:
    """Say what is wrong before anything is started."""
    place, _, rest = on.partition(":")
    if place not in PLACES or (place == "local" and rest):
        raise OcilError(
            f"--on is '{on}' but must be local, ray, ray:ADDRESS or slurm.{suggest(place, PLACES)}"
        )
    if place == "slurm" and rest not in ("", "local"):
        raise OcilError(f"--on is '{on}' but must be slurm, or slurm:local to try it here.")
    for name, value in (("workers", workers), ("per-gpu", per_gpu)):
        if value is not None and value < 1:
            raise OcilError(f"--{name} is {value} but must be at least 1.")


def at_a_time(on: str, workers: int | None) -> int | None:
    """Runs at a time, as far as that is known before a cluster is reached."""
    if on in ("local", "ray"):
        cores = os.cpu_count() or 1
        return min(workers or (1 if on == "local" else cores), cores)
    return workers


def open_runner(
    on: str,
    workers: int | None,
    data_dir: Path | None,
    folder: Path,
    per_gpu: int = 1,
    options: Sequence[str] = (),
) -> Runner:
    """The runner of a place; whatever package it needs is loaded here."""
    place, _, rest = on.partition(":")
    if place == "ray":
        from ocil.study.ray import Ray

        return Ray(rest, at_a_time(on, workers) if workers else None, data_dir, per_gpu)
    if place == "slurm":
        from ocil.study.slurm import Slurm

        given = dict(read_change(option, "--slurm") for option in options)
        return Slurm(rest, workers, data_dir, folder / ".slurm", given)
    from ocil.study.local import Local

    return Local(at_a_time(on, workers) or 1, data_dir)
