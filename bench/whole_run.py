"""How long a whole run would take: `OMP_NUM_THREADS=1 python bench/whole_run.py [--steps 20]`.

A method whose steps grow dearer with every task cannot be judged by its first. Here it goes through
all tasks of CIFAR-10 (slim ResNet-18, memory 200, its preset) on noise: in each task it takes a few
steps to settle and then `--steps` timed ones, 20 by default. Printed are the images through the
backbone and the processor seconds of a step in every task, and what a whole stream would take: the
mean over the tasks times the steps of a cut (`--limit-per-class 500`) and of the full data set.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from ocil.data import SOURCES
from ocil.learners import registry
from ocil.run.session import Session
from ocil.settings import layered

DATA, TASKS, BATCH, MEMORY = "cifar10", 5, 10, 200
LENGTHS = {"cut, 500 a class": 500, "full, 5 000 a class": 5000}  # steps of ten images
SETTLE = (7, 2)  # steps before the timed ones: of the first task, until replay is full; of others


def start(method: str) -> Session:
    """A learner that has seen nothing, at its preset and one gradient step a batch."""
    kind = registry.get(method)
    flags: dict[str, Any] = {"data": DATA, "memory": MEMORY, "steps": 1}
    settings, _ = layered(kind.settings_type, SOURCES[DATA].protocol, kind.presets, flags)
    return Session(method, settings, SOURCES[DATA].shape)


def step(session: Session, task: int, draw: torch.Generator) -> tuple[float, int]:
    """Processor seconds and images through the backbone of one batch."""
    size = (BATCH, *SOURCES[DATA].shape)
    x = torch.randint(256, size, dtype=torch.uint8, generator=draw)
    before, began = session.learner.backbone_images, time.process_time()
    session.learn(x, [2 * task + i % 2 for i in range(BATCH)], task=task)
    return time.process_time() - began, session.learner.backbone_images - before


def through_the_tasks(method: str, steps: int) -> list[tuple[float, float]]:
    """(median seconds, mean images) of a step, for every task."""
    session, draw, found = start(method), torch.Generator().manual_seed(0), []
    for task in range(TASKS):
        if session.learner.needs_tasks:
            session.learner.begin_task(task)
        for _ in range(SETTLE[task > 0]):
            step(session, task, draw)
        taken = [step(session, task, draw) for _ in range(steps)]
        seconds, images = zip(*taken, strict=True)
        found.append((statistics.median(seconds), statistics.mean(images)))
    return found


def main() -> None:
    """Print one block a method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="*", default=["er", "ocm", "onpro"])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'method':8}{'':10}" + "".join(f"{f'task {t + 1}':>9}" for t in range(TASKS)))
    for method in options.methods:
        found = through_the_tasks(method, options.steps)
        print(f"{method:8}{'images':10}" + "".join(f"{images:9.0f}" for _, images in found))
        print(f"{'':8}{'s a step':10}" + "".join(f"{seconds:9.2f}" for seconds, _ in found))
        mean = statistics.mean(seconds for seconds, _ in found)
        for name, count in LENGTHS.items():
            print(f"{'':8}a whole run ({name}): {mean * count / 3600:.2f} hours", flush=True)


if __name__ == "__main__":
    main()
