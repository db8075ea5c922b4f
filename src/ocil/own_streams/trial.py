"""A trial: one rival learns one stream; what comes of it is a line of JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ocil.classifier import Classifier
from ocil.errors import OcilError, suggest
from ocil.files import make_folder, write_atomic, writing
from ocil.own_streams.rivals import RIVALS
from ocil.own_streams.streams import STREAMS, Arrays, Order, samples
from ocil.report.own_streams import FOLDER, ORDERS, read_file
from ocil.run.metrics import calibration_error
from ocil.run.process import set_threads
from ocil.run.record import source_state
from ocil.version import __version__

CHUNK = 100  # samples of a call of partial_fit
ENOUGH = 1000  # samples asked from which the calibration error is told


class Trial(NamedTuple):
    data: str
    order: Order
    method: str
    seed: int
    split: str = "test"  # or validation, as in records of runs

    @property
    def command(self) -> str:
        """What makes its record."""
        given = [f"--set {key}={getattr(self, key)}" for key in self._fields[:-1]]
        given += ["--set validate=true"] * (self.split == "validation")
        return " ".join(["ocil study", FOLDER, *given])


def plan(given: Mapping[str, Any]) -> list[Trial]:
    """Trials by `given` data, order, method, seed (a value or a list of them) and validate.

    >>> plan({"data": "wine", "order": "shuffled", "method": "slda-raw", "seed": 3})[0].command
    'ocil study own-streams --set data=wine --set order=shuffled --set method=slda-raw --set seed=3'
    """
    validate = given.get("validate") is True
    data = [name for name, s in STREAMS.items() if not validate or s.part != "confirms"]
    known: dict[str, Sequence[Any]] = {
        "data": data,
        "order": list(ORDERS),
        "method": list(RIVALS),
        "seed": range(100, 200) if validate else range(5),
    }
    for key in sorted(given.keys() - {*known, "validate"}):
        raise OcilError(f"Study {FOLDER} has no setting '{key}'.{suggest(key, known)}")
    chosen = []
    for key, values in known.items():
        own = given.get(key, values[:5] if key == "seed" else values)
        chosen.append(own if isinstance(own, Sequence) and not isinstance(own, str) else [own])
        for value in chosen[-1]:
            if value not in values:
                shown = ", ".join(map(str, values[:20]))
                part = "held-out" if validate else "test"
                raise OcilError(f"No {key} {value} of {part} parts in {FOLDER}; choose of {shown}.")
    return [Trial(*each, split="validation" if validate else "test") for each in product(*chosen)]


def left(trials: Sequence[Trial], folder: Path) -> list[Trial]:
    """Those that have no record yet."""
    files = {trial.data: read_file(folder / f"{trial.data}.jsonl") for trial in trials}
    done = {tuple(r[name] for name in Trial._fields) for found in files.values() for r in found}
    return [trial for trial in trials if trial not in done]


def run(trials: Sequence[Trial], folder: Path, data_dir: Path | None) -> Iterator[dict[str, Any]]:
    """Records of the trials, each written when it is made; on one core, for equal times."""
    from threadpoolctl import threadpool_limits

    @lru_cache(1)
    def arrays(name: str) -> Arrays:
        return STREAMS[name].read(data_dir)

    make_folder(folder)
    set_threads(1)
    for trial in trials:
        file = folder / f"{trial.data}.jsonl"
        with threadpool_limits(1):
            record = measure(trial, arrays(trial.data))
        with writing(file):
            lines = [json.dumps(known) for known in [*read_file(file), record]]
            write_atomic(file, "".join(f"{line}\n" for line in lines).encode())
        yield record


def measure(trial: Trial, arrays: Arrays) -> dict[str, Any]:
    """Learn the stream in calls of 100 samples, then ask; the first answer belongs to learning."""
    validate = trial.split == "validation"
    found = samples(STREAMS[trial.data], arrays, trial.order, trial.seed, validate)
    began = time.perf_counter()
    model = RIVALS[trial.method](found, trial.seed)
    for start in range(0, len(found.y), CHUNK):
        model.partial_fit(found.x[start : start + CHUNK], found.y[start : start + CHUNK])
    if isinstance(model, Classifier):
        model.flush()
    model.predict_proba(found.x[:1])
    seconds = time.perf_counter() - began
    shares = model.predict_proba(found.x_test)
    right = model.classes_[shares.argmax(1)] == found.y_test
    enough = len(right) >= ENOUGH
    score = getattr(model, "score_", None)
    return {
        **trial._asdict(),
        "part": STREAMS[trial.data].part,
        "memory": found.memory,
        "classes": len(np.unique(found.y)),
        "learned": len(found.y),
        "asked": len(right),
        "accuracy": 100 * float(right.mean()),
        "calibration_error": calibration_error(shares.max(1), right) if enough else None,
        "score": 100 * score.accuracy if score else None,
        "score_asked": score.asked if score else None,
        "seconds": round(seconds, 3),
        "bytes_held": _held(model),
        "command": trial.command,
        "version": __version__,
        **source_state(),
    }


def _held(model: Any) -> int:
    """Bytes beyond a net and its optimiser."""
    held = model._fitted().session.learner if isinstance(model, Classifier) else model
    return int(held.nbytes)
