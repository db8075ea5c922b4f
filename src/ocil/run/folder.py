"""A run folder: settings.json before step 0, events.jsonl as it goes, record.json at the end."""

from __future__ import annotations

import errno
import functools
import json
import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ocil import files
from ocil.data.own import OwnData
from ocil.errors import Busy, OcilError, refusing
from ocil.learners import registry
from ocil.run import latentfile
from ocil.run.reading import read_record
from ocil.settings import Settings, job_id, to_mapping

SCHEMA = 1
MAX_NOTE = 1 << 20  # bytes


@dataclass(frozen=True)
class Plan:
    """What a run is: a method with all its settings. The run is a pure function of this."""

    method: str
    settings: Settings
    preset: str = "default"
    study: str | None = None
    trials: int | None = None  # made on held-out images to choose these settings, where known

    @functools.cached_property
    def job(self) -> str:
        return job_id(registry.info(self.method), to_mapping(self.settings))


class RunFolder:
    """Paths and the append-only events of one run."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.settings, self.record = self.path / "settings.json", self.path / "record.json"
        self.data = self.path / "data.json"  # where data of your own are: no part of the settings
        self.events, self.checkpoints = self.path / "events.jsonl", self.path / "checkpoints"
        self.latents = self.path / latentfile.NAME

    @property
    def resume(self) -> str:
        """The command that continues the run, to be pasted."""
        return f"ocil resume {shlex.quote(str(self.path))}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second process from working on the same run."""
        files.make_folder(self.path)
        refused = Busy(f"Another process is working on {self.path}; wait for it.")
        with files.locked(self.path / ".lock", refused):
            for file in (self.settings, self.data, self.latents, self.record):
                files.remove_leftovers(file)
            yield

    def check_free(self) -> None:
        """Refuse a folder that already holds a run."""
        # Checkpoints of another run would be loaded, so they count as a run even on their own.
        if any(p.exists() for p in (self.settings, self.record, self.events, self.checkpoints)):
            raise OcilError(
                f"{self.path} already holds a run. Continue it with `{self.resume}`, "
                "look at it with `ocil show`, or choose another --out."
            )

    def check_unfinished(self) -> None:
        """Refuse a run that has its record."""
        if self.record.exists():
            read_record(self.record)  # says so if it is damaged or too new
            raise OcilError(f"{self.path} is finished; look at it with `ocil show {self.path}`.")

    def create(self, plan: Plan) -> None:
        """Claim the folder for a plan."""
        self.check_free()
        files.make_folder(self.path)
        content = {"schema": SCHEMA, "method": plan.method, "preset": plan.preset}
        content |= {} if plan.trials is None else {"trials": plan.trials}
        content |= {"study": plan.study, "settings": to_mapping(plan.settings)}
        files.write_atomic(self.settings, json.dumps(content, indent=1).encode())

    def plan(self) -> Plan:
        """Read back what the run is."""
        if not self.settings.exists():
            raise OcilError(
                f"{self.path} holds no run: settings.json is missing. Start one with `ocil run`."
            )
        with refusing(f"{self.settings} cannot be read", "copy it again"):
            content = json.loads(files.read_plain(self.settings, MAX_NOTE))
            if content["schema"] > SCHEMA:
                raise OcilError(f"{self.settings} was made by a newer ocil; upgrade ocil.")
            values = registry.upgraded(content["method"], content["settings"])
            settings = registry.make_settings(content["method"], values, str(self.settings))
            preset, study, trials = content["preset"], content["study"], content.get("trials")
            if not isinstance(preset, str) or not isinstance(study, str | None):
                raise TypeError("preset and study must be text")
            if type(trials) not in (int, type(None)):
                raise TypeError("trials must be a number")
            return Plan(content["method"], settings, preset, study, trials)

    def remember(self, own: OwnData) -> None:
        """Where data of your own were, for `ocil resume`."""
        place = {"path": str(own.path.resolve()), "resize": own.resize, "bad": own.bad_images}
        files.write_atomic(self.data, json.dumps(place).encode())

    def own_data(self) -> OwnData | None:
        """What `remember` wrote; None for a run on a named data set."""
        if not self.data.exists():
            return None
        with refusing(f"{self.data} cannot be read", "say where the data are with --data"):
            place = json.loads(files.read_plain(self.data, MAX_NOTE))
            path, resize, bad = (place[key] for key in ("path", "resize", "bad"))
            if not isinstance(path, str) or type(resize) not in (int, type(None)):
                raise TypeError("its values have other types")
            if bad not in ("fail", "skip"):
                raise ValueError(f"bad is {bad!r}")
            return OwnData(Path(path), resize, bad)

    def append(self, event: dict[str, Any]) -> None:
        """Add one line; it is in the hands of the system before this returns."""
        line = json.dumps(event).encode() + b"\n"
        try:
            with open(self.events, "ab+", buffering=0) as file:
                about = os.fstat(file.fileno())
                if stat.S_ISFIFO(about.st_mode):  # nobody reads what a pipe takes
                    raise OSError(errno.EINVAL, files.NOT_REGULAR)
                # A kill can leave half a line behind: start on a fresh one.
                if about.st_size and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n":
                    line = b"\n" + line
                # The last bytes of a disk are no error yet.
                if os.write(file.fileno(), line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise files.cannot_write(self.events, error) from error

    def read_events(self) -> list[dict[str, Any]]:
        """All whole lines; torn ones are left out."""
        if not self.events.exists():
            return []
        return _parsed(files.read_plain(self.events).splitlines())

    def progress(self) -> tuple[int, int]:
        """(steps done, steps in all) by the first and the last events; (0, 0) without any."""
        step = steps = 0
        try:
            with files.open_plain(self.events) as file:
                first = file.readline(4096)
                file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
                lines = [first, *file.read().splitlines()]
        except OSError:
            return 0, 0
        for event in _parsed(lines):
            step, steps = event.get("step", step), event.get("steps", steps)
        return step, steps

    def sync_events(self) -> None:
        """Make the events durable; called before a checkpoint that counts on them."""
        try:
            with open(self.events, "rb+") as file:
                os.fsync(file.fileno())
        except FileNotFoundError:
            pass  # there are none yet
        except OSError as error:
            raise files.cannot_write(self.events, error) from error


def _parsed(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """The events of whole lines."""
    found = []
    for line in lines:
        with suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return [event for event in found if isinstance(event, dict)]
