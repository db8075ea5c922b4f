"""Runs as claims see them: flat settings to choose by, and numbers to compare."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ocil.report.cells import runs_methods
from ocil.report.groups import Group, Record, derive
from ocil.run import metrics

# What two methods must share to be compared; the rest is each method's own business.
PROTOCOL = ("data", "memory", "split", "limit_per_class", "epochs", "order", "tasks", "batch",
            "net", "width", "precision", "augment", "fingerprint")  # fmt: skip
# They change nothing that is compared: a name for settings, and when to look.
ASIDE = ("seed", "preset", "eval_every", "probe")


@dataclass(frozen=True, eq=False)
class Run:
    """A record with the study and the name (STUDY/JOB) under which it is kept."""

    record: Record
    study: str
    name: str
    _values: dict[tuple[str, str], float | None] = field(default_factory=dict, repr=False)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings and facts, with what tells this run from others of its configuration."""
        record = self.record
        named = {key: record.get(key) for key in ("method", "data", "memory", "split", "seed")}
        preset = {"preset": record["settings"].get("preset", "default")}
        return Group((record,)).settings | named | preset

    @property
    def of_a_method(self) -> bool:
        """Whether its study runs methods as they are."""
        return runs_methods(self.study)

    def key(self, without: frozenset[str], between_methods: bool) -> str:
        """Equal for runs that may be compared, whatever they have in `without`."""
        names = PROTOCOL if between_methods else [k for k in self.settings if k not in ASIDE]
        return _canonical({k: self.settings.get(k) for k in names if k not in without})

    def configuration(self, without: frozenset[str]) -> str:
        """Equal for runs that differ by the seed and what is in `without` only."""
        left_out = {*ASIDE, *without}
        return _canonical({k: v for k, v in self.settings.items() if k not in left_out})

    def value(self, metric: str, readout: str | None) -> float | None:
        """A metric at a read-out (the reported one by default); None where it is not known."""
        asked = metric, readout or self.record["readout"]
        if asked not in self._values:
            self._values[asked] = measure(self.record, *asked)
        return self._values[asked]


def measure(record: Record, metric: str, readout: str) -> float | None:
    """A metric of `groups`, "curve" (the mean of A_t over the tasks) or one of INSIDE."""
    if metric in INSIDE:
        return inside(record, metric)
    if metric == "curve":
        matrix = metrics.accuracy_matrix(record["evaluations"], record["tasks"], readout)
        mean = float(np.mean(metrics.accuracy_curve(matrix)))
        return None if math.isnan(mean) else mean
    return derive(record, readout)[metric]


INSIDE = {
    "test": ("test", "components"),
    "replayed": ("replayed", "components"),
    "gap": ("test", "replayed", "components"),
    "gap-single": ("test", "replayed", "single"),
}


def inside(record: Record, metric: str) -> float | None:
    """Own-class distance at the end of the stream, or test over replayed: how far test features
    lie from their class, in units of how far the replayed ones do. None unless it is measured.
    """
    *kinds, form = INSIDE[metric]
    try:
        distances = record["inside"][-1]["own_class_distance"]
        found = [distances[kind][form] for kind in kinds]
    except (KeyError, IndexError, TypeError):
        return None
    if not all(type(x) in (int, float) and 0 < x < math.inf for x in found):
        return None
    value = found[0] / found[1] if len(found) == 2 else found[0]
    return value if 0 < value < math.inf else None


def _canonical(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)
