"""What a batch costs, where no record tells: a few steps on noise."""

from __future__ import annotations

import statistics
import time

import torch

from ocil.data import SOURCES
from ocil.run.folder import Plan
from ocil.session import Session

TIMED_STEPS, TIMED_SECONDS = 12, 20.0


def measure(plan: Plan) -> float | None:
    """Seconds of a batch from a few steps on noise, or None for unknown data."""
    source = SOURCES.get(plan.settings.data)
    if source is None:
        return None
    torch.set_num_threads(1)
    session = Session(plan.method, plan.settings, source.shape)
    if session.learner.needs_tasks:
        session.learner.begin_task(0)
    draw = torch.Generator().manual_seed(0)
    size = (plan.settings.batch, *source.shape)
    x = torch.randint(256, size, dtype=torch.uint8, generator=draw)
    labels = [i % plan.settings.classes_per_task for i in range(plan.settings.batch)]
    # Time of the processor, which others may be using too; elsewhere there is only the clock.
    clock = time.process_time if plan.settings.device == "cpu" else time.perf_counter
    times = []
    while len(times) < TIMED_STEPS and sum(times) < TIMED_SECONDS:
        began = clock()
        session.learn(x, labels)
        times.append(clock() - began)
    # The first steps have little to replay: the later half is what a step costs.
    return statistics.median(times[len(times) // 2 :])
