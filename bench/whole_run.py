"""How long a whole run would take: `OMP_NUM_THREADS=1 python bench/whole_run.py [--steps 20]`.

A method whose steps grow dearer with every task cannot be judged by its first. Here it goes through
all tasks of CIFAR-10 (slim ResNet-18, memory 200, its preset) on noise: in each task it takes a few
steps to settle and then `--steps` timed ones, 20 by default. Printed are the images through the
backbone and the processor seconds of a step in every task, and what a whole stream would take: the
mean over the tasks times the steps of a cut (`--limit-per-class 500`) and of the full data set.
Dear methods take half an hour; a line on the error stream after each task says where it is.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import torch
from methods import noise, start, timed

DATA, TASKS, MEMORY = "cifar10", 5, 200
LENGTHS = {"cut, 500 a class": 500, "full, 5 000 a class": 5000}  # steps of ten images
SETTLE = (7, 2)  # steps before the timed ones: of the first task, until replay is full; of others


def through_the_tasks(method: str, steps: int) -> list[tuple[float, float]]:
    """(median seconds, mean images) of a step, for every task."""
    session, draw, found = start(method, DATA, MEMORY), torch.Generator().manual_seed(0), []
    for task in range(TASKS):
        if session.learner.needs_tasks:
            session.learner.begin_task(task)
        settle = SETTLE[task > 0]
        taken = [timed(session, *noise(DATA, task, draw), task) for _ in range(settle + steps)]
        if session.learner.needs_tasks:  # what makes the next task dearer: a snapshot, a teacher
            x, y = noise(DATA, task, draw)
            session.learner.end_task(task, x, torch.tensor(y))
        seconds, images = zip(*taken[settle:], strict=True)
        found.append((statistics.median(seconds), statistics.mean(images)))
        print(f"{method}: task {task + 1} of {TASKS}, {found[-1][0]:.2f} s a step", file=sys.stderr)
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
