"""A storm of damaged files over all readers.

Each file is read as the library does, one in five by its command. It ends in one sentence (exit
code 2), or gives the right data; in no other exception, no signal, and within 5 seconds (of the
processor; 30 by the clock) and 1 GB.

    cd bench && python -m storms.files 3000
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import Storm
from .readers import READERS, Reader

SECONDS = 5.0  # of the processor
HANGS = 30.0  # seconds by the clock after which a reader is lost
MEGABYTES = 1024  # that one file may make a process grow
BY_COMMAND = 5  # one in so many is read by its command


class Row(NamedTuple):
    """What became of the files of one reader."""

    storm: str
    times: int
    violations: list[str]
    slowest: float  # seconds


def mutated(times: int, folder: Path, only: str = "") -> list[Row]:
    """Read `times` damaged files, one reader after the other; the same ones every time.

    They are read in another process: one that dies or hangs is seen, and the next goes on.
    """
    readers = [reader for reader in READERS if only in reader.name]
    found = {reader.name: Row(reader.name, 0, [], 0.0) for reader in readers}
    done = 0
    while done < times:
        for number, problem, seconds in _batch(folder, only, done, times):
            done = number + 1
            name = readers[number % len(readers)].name
            row = found[name]
            problems = row.violations + ([f"{name} {number}: {problem}"] if problem else [])
            found[name] = Row(name, row.times + 1, problems, max(row.slowest, seconds))
    return list(found.values())


def damaged(times: int, folder: Path) -> Storm:
    """The same as one storm."""
    rows = mutated(times, folder)
    slowest = max(row.slowest for row in rows)
    seen = {"readers": len(rows), "milliseconds for the slowest file": round(1000 * slowest)}
    found = [problem for row in rows for problem in row.violations]
    return Storm("damaged files", sum(row.times for row in rows), found, seen)


def _batch(folder: Path, only: str, first: int, last: int) -> Iterator[tuple[int, str, float]]:
    """Cases from `first` on until all are read or the process is lost."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["-m", "storms.files", "--child", str(folder.resolve()), only, str(first), str(last)]
    limits = {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder.resolve() / "cache")}
    with subprocess.Popen(
        [sys.executable, *words],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | limits,
    ) as process:
        assert process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=_forward, args=(process.stdout, lines), daemon=True)
        reader.start()
        if not lines.get(timeout=300):
            raise RuntimeError("The sound files cannot be made or read.")
        now, began = first, time.monotonic()
        while True:
            try:
                line = lines.get(timeout=HANGS)
            except queue.Empty:
                process.kill()
                yield now, "it hangs", time.monotonic() - began
                return
            if not line:
                break
            event = json.loads(line)
            now, began = event["case"], time.monotonic()
            if "seconds" in event:
                yield now, event["problem"], event["seconds"]
                now += 1
        if (code := process.wait()) != 0 or now < last:
            yield now, f"the process ended with {code}", time.monotonic() - began


def _forward(stream: Any, lines: queue.Queue[str]) -> None:
    for line in stream:
        lines.put(line)
    lines.put("")


# ------------------------------------------------------------------ in the other process


def _child(folder: Path, only: str, first: int, last: int) -> None:
    logging.getLogger().addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w", buffering=1)  # commands may write to the one of before
    sys.stdout = sys.stderr
    readers = [reader for reader in READERS if only in reader.name]
    sound = {reader.name: _sound(folder, reader) for reader in readers}
    print(json.dumps({"ready": True}), file=out)
    for number in range(first, last):
        reader = readers[number % len(readers)]
        print(json.dumps({"case": number}), file=out)
        problem, seconds = _case(folder, reader, number // len(readers), sound[reader.name])
        print(json.dumps({"case": number, "problem": problem, "seconds": seconds}), file=out)


def _sound(folder: Path, reader: Reader) -> Any:
    """Make the sound file where it is not there yet, and read it."""
    place = folder / "sound" / reader.name.replace(" ", "-")
    if not (place / "made").exists():
        shutil.rmtree(place, ignore_errors=True)
        (place / "it").mkdir(parents=True)
        with contextlib.redirect_stdout(io.StringIO()):
            reader.make(place / "it")
        (place / "made").touch()
    with tempfile.TemporaryDirectory() as copy:
        for name in ("one", "two"):
            shutil.copytree(place / "it", Path(copy) / name)
        _by_command(reader, Path(copy) / "one", None)  # what it imports is paid here
        return reader.read(Path(copy) / "two")


def _case(folder: Path, reader: Reader, number: int, right: Any) -> tuple[str, float]:
    """What is wrong with how one damaged file is read ("" if nothing), and the seconds."""
    name = reader.name.replace(" ", "-")
    place = folder / "case" / name
    shutil.rmtree(place.parent, ignore_errors=True)
    shutil.copytree(folder / "sound" / name / "it", place)
    draw = np.random.default_rng([len(name), *name.encode(), number])
    reader.damage(place, draw)
    kept = folder / "kept" / f"{name}-{number}"
    shutil.copytree(place, kept)
    before, began = _reset_peak(), time.process_time()  # a busy machine is no fault of a reader
    problem = (_by_command if number % BY_COMMAND == 4 else _by_library)(reader, place, right)
    seconds, grown = time.process_time() - began, _peak() - before
    if not problem and seconds > SECONDS:
        problem = f"it took {seconds:.1f} seconds"
    if not problem and grown > MEGABYTES:
        problem = f"it took {grown:.0f} MB"
    if not problem:
        shutil.rmtree(kept)
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return problem, round(seconds, 3)


def _by_library(reader: Reader, place: Path, right: Any) -> str:
    from ocil.errors import OcilError

    try:
        found = reader.read(place)
    except OcilError as error:
        return _of_sentence(str(error))
    except Exception as error:
        return _where(error)
    return "other data than were written" if reader.exact and found != right else ""


def _by_command(reader: Reader, place: Path, _: Any) -> str:
    from ocil.cli import main

    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main(reader.words(place))
    except SystemExit as stop:
        if stop.code in (0, None):
            return ""
        said = err.getvalue().strip().removeprefix("ocil: ")
        return _of_sentence(said) if stop.code == 2 else f"exit code {stop.code}: {said[-300:]}"
    except BaseException as error:
        return _where(error)


def _of_sentence(text: str) -> str:
    fine = text and "\n" not in text and "\x1b" not in text and "Traceback" not in text
    return "" if fine and len(text) < 2000 else f"no sentence: {text[:300]!r}"


def _where(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in last if "ocil" in frame.filename] or last
    at = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
    return f"{type(error).__name__} at {at}: {str(error)[:200]}"


def _reset_peak() -> float:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> float:
    """Megabytes that the process held at most since the last look; 0 where nobody tells."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(x for x in lines if x.startswith("VmHWM:")).split()[1]) / 1024
    return 0.0


def main(words: list[str]) -> int:
    if words[:1] == ["--child"]:
        _child(Path(words[1]), words[2], int(words[3]), int(words[4]))
        return 0
    times, only = int(words[0]) if words else 3000, words[1] if len(words) > 1 else ""
    folder = Path(words[2]) if len(words) > 2 else Path(tempfile.mkdtemp(prefix="storm-"))
    rows = mutated(times, folder, only)
    for row in rows:
        print(f"{row.storm}: {row.times} files, slowest {row.slowest:.2f} s", *row.violations)
    print(f"Files that broke a reader: {folder / 'kept'}")
    return int(any(row.violations for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
