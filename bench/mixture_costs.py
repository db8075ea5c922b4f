"""How the cost of one update grows: measured exponents of time and memory, for `em_versus_mmot.py`.

One class gets B points in d dimensions; one quantity after the other is doubled four times while
the rest stay at `BASE`. The exponent is the slope of log time (or of
log peak memory) over log quantity. The sizes are well above those of a stream, where the cost of
calling an operation hides all slopes. Seeding and its challenges are left out.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from ocil.fields import from_mapping
from ocil.mixture import Mixtures, MixtureSettings
from ocil.mixture.dual import Dual

BASE = {"B": 1024, "K": 16, "d": 256, "S": 64, "T_phi": 2, "I_EM": 8}
RANGES = {
    "B": (512, 1024, 2048, 4096, 8192),
    "K": (8, 16, 32, 64, 128),
    "d": (128, 256, 512, 1024, 2048),
    "S": (32, 64, 128, 256, 512),
    "T_phi": (1, 2, 4, 8, 16),
    "I_EM": (2, 4, 8, 16, 32),
}
# The paper's bounds are sums, so each exponent is at most what stands here.
PAPER = {
    "EM": {"time": "I_EM B K d", "memory": "B K + K d"},
    "MMOT": {"time": "T_phi B + B K d + S B d", "memory": "B d + K d"},
}
MATTERS = {
    "sinkhorn": ("B", "K", "d"),
    "dual": ("B", "K", "d", "S", "T_phi"),
    "nll": ("B", "K", "d"),
    "batch EM": ("B", "K", "d", "I_EM"),
}


class Growth(NamedTuple):
    """Milliseconds and peak kilobytes at each value of a quantity, and their exponents: over the
    whole range, and over its last doubling."""

    values: list[int]
    ms: list[float]
    kilobytes: list[float]
    time_exponents: tuple[float, float]
    memory_exponents: tuple[float, float]


def made(objective: str, points: int | None = 16, **more: Any) -> MixtureSettings:
    """Settings of an objective; without `points` it sees those of the batch alone."""
    return from_mapping(MixtureSettings, {"objective": objective, "window.points": points} | more)


def plain_em() -> MixtureSettings:
    """Stepwise EM with nothing of ours: batch points, a random start."""
    return made("stepwise-em", None, **{"start.seeding": "random", "start.again": None})


def settings_of(method: str, at: dict[str, int]) -> MixtureSettings:
    """Points of the batch alone, no challenges: what the bounds speak of."""
    size: dict[str, Any] = {"components": at["K"], "start.points": at["K"], "start.again": None}
    size |= {"window.queue": at["B"]}
    if method == "batch EM":
        return made("batch-em", **size | {"em.passes": at["I_EM"]})
    if method == "dual":
        size |= {"dual.samples": at["S"], "dual.ascents": at["T_phi"]}
    return made(method, None, **size)


def updater(method: str, at: dict[str, int]) -> Callable[[], None]:
    """An update of a class past its seeding; the clusters of so long a queue would take minutes."""
    draw, settings = torch.Generator().manual_seed(0), settings_of(method, at)
    y = torch.zeros(at["B"], dtype=torch.long)
    z = torch.randn(at["B"], at["d"], generator=draw)
    mixtures = Mixtures(at["d"], settings)
    store, first = mixtures.store, torch.tensor([0])
    store.grow(1)
    log_pi = torch.full((1, at["K"]), -math.log(at["K"]))
    store.put(first, {"mu": z[: at["K"]].unsqueeze(0), "log_pi": log_pi})
    store.host("seeded")[0], store.host("due")[0] = 1, 2**62
    if isinstance(mixtures.mover, Dual):
        mixtures.mover.start_networks(first, draw)
    return lambda: mixtures.update(z, y, draw)


def peak_kilobytes(call: Callable[[], None]) -> float:
    """Largest sum of the tensors that live at one time and were made during the call."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it talks otherwise
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    assert seen.profiler is not None
    events = seen.profiler.kineto_results.events()  # pyright: ignore
    changes = sorted(
        (e.start_ns(), e.nbytes())  # pyright: ignore[reportAttributeAccessIssue]
        for e in events
        if e.name() == "[memory]"
    )
    return max(np.cumsum([size for _, size in changes]), default=0) / 1e3


def milliseconds(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median processor time of each; they take turns in an order drawn anew each round."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    names, draw = list(calls), random.Random(0)
    for turn in range(rounds + 1):
        draw.shuffle(names)
        for name in names:
            began = time.process_time()
            calls[name]()
            if turn:
                taken[name].append(1e3 * (time.process_time() - began))
    return {name: statistics.median(values) for name, values in taken.items()}


def growth(quantity: str, rounds: int, count: int = 5) -> dict[str, Growth]:
    """For each method that the quantity matters to, at the first `count` values."""
    values = RANGES[quantity][:count]
    methods = [name for name, known in MATTERS.items() if quantity in known]
    points = {(m, v): BASE | {quantity: v} for m in methods for v in values}
    calls = {f"{m} {v}": updater(m, at) for (m, v), at in points.items()}
    ms = milliseconds(calls, rounds)
    found = {}
    for method in methods:
        spent = [ms[f"{method} {v}"] for v in values]
        held = [peak_kilobytes(updater(method, points[method, v])) for v in values]
        found[method] = Growth(
            list(values), spent, held, slopes(values, spent), slopes(values, held)
        )
    return found


def slopes(x: tuple[int, ...], y: list[float]) -> tuple[float, float]:
    """Least squares in the logarithms: of all points, and of the last two."""
    whole, end = (np.polyfit(np.log(x[i:]), np.log(y[i:]), 1)[0] for i in (0, len(x) - 2))
    return float(whole), float(end)
