"""How long will it take? From finished records of the same kind, or from a few timed steps."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from ocil.data import SOURCES
from ocil.run.folder import Plan
from ocil.run.session import Session
from ocil.settings import Settings, to_mapping

COSTLY = ("data", "net", "width", "batch", "replay", "steps", "augment", "optimizer", "ema",
          "limit_per_class", "epochs", "order", "validate", "precision")  # fmt: skip
TIMED_STEPS = 12


def kind_of(method: str, settings: dict[str, Any]) -> tuple[Any, ...]:
    """Runs of one kind take about as long as each other."""
    known = Settings()  # a record from before a setting existed was made with its default
    return (method, *(settings.get(key, getattr(known, key)) for key in COSTLY))


def seconds_by_kind(records: list[dict[str, Any]]) -> dict[tuple[Any, ...], float]:
    found: dict[tuple[Any, ...], list[float]] = {}
    for record in records:
        if isinstance(record.get("seconds"), int | float):
            kind = kind_of(record["method"], record["settings"])
            found.setdefault(kind, []).append(record["seconds"])
    return {kind: statistics.median(values) for kind, values in found.items()}


def measure(plan: Plan) -> float | None:
    """Seconds of a whole run projected from a few steps on noise, or None for unknown data."""
    source = SOURCES.get(plan.settings.data)
    if source is None:
        return None
    torch.set_num_threads(1)
    session = Session(plan.method, plan.settings, source.shape)
    x = torch.randint(
        256,
        (plan.settings.batch, *source.shape),
        dtype=torch.uint8,
        generator=torch.Generator().manual_seed(0),
    )
    labels = [i % plan.settings.classes_per_task for i in range(plan.settings.batch)]
    times = []
    for _ in range(TIMED_STEPS):
        began = time.perf_counter()
        session.learn(x, labels)
        times.append(time.perf_counter() - began)
    images = source.train
    if plan.settings.limit_per_class:
        images = min(images, plan.settings.limit_per_class * source.classes)
    steps = images * plan.settings.epochs / plan.settings.batch
    # The first steps have little to replay: the later half is what a step costs.
    return steps * statistics.median(times[TIMED_STEPS // 2 :])


def project(plans: list[Plan], records: list[dict[str, Any]]) -> list[float | None]:
    """Seconds each plan is expected to take."""
    known: dict[tuple[Any, ...], float | None] = dict(seconds_by_kind(records))
    times = []
    for plan in plans:
        kind = kind_of(plan.method, to_mapping(plan.settings))
        if kind not in known:
            known[kind] = measure(plan)
        times.append(known[kind])
    return times
