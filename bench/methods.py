"""What a step of every method costs: `OMP_NUM_THREADS=1 python bench/methods.py [--write]`.

Each method learns from noise with its preset for MNIST (MLP) or CIFAR-10 (slim ResNet-18): five
tasks of two classes, after which the memory is full and as much is replayed as ever will be, then
timed batches of the last task. The methods take turns, one batch
each, with ER in every turn; printed are the images through the backbone and the bytes held beyond
net and memory, and the median over turns of the time relative to ER's, all at one gradient step a
batch. `--write` keeps the table where `ocil methods` finds it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from ocil.data import SOURCES
from ocil.learners import registry
from ocil.session import Session

KEPT = Path(__file__).parents[1] / "src/ocil/learners/costs.json"
DATA = {"mlp": "mnist", "resnet18": "cifar10"}
MEMORY, TASKS, WARM = 200, 5, 4  # images; tasks; batches of each before the timed ones


def start(name: str, data: str, memory: int) -> Session:
    """A learner that has seen nothing, at its preset and one gradient step a batch."""
    kind = registry.get(name)
    flags: dict[str, Any] = {"data": data, "updates": 1}
    if kind.settings_type().memory is not None:
        flags["memory"] = memory
    settings = registry.make_settings(name, registry.resolve(name, flags)[0])
    return Session(name, settings, SOURCES[data].shape)


def noise(data: str, task: int, draw: torch.Generator) -> tuple[torch.Tensor, list[int]]:
    """Ten images of the two classes of a task."""
    x = torch.randint(256, (10, *SOURCES[data].shape), dtype=torch.uint8, generator=draw)
    return x, [2 * task + i % 2 for i in range(10)]


def timed(session: Session, x: torch.Tensor, y: list[int], task: int) -> tuple[float, int]:
    """Processor seconds and images through the backbone of one batch."""
    before, began = session.learner.backbone_images, time.process_time()
    session.learn(x, y, task=task)
    return time.process_time() - began, session.learner.backbone_images - before


class Candidate:
    """A method in the middle of its last task, with a full memory."""

    def __init__(self, name: str, data: str) -> None:
        self.session, self.data = start(name, data, MEMORY), data
        self.draw = torch.Generator().manual_seed(0)
        learner = self.session.learner
        for task in range(TASKS):
            if learner.needs_tasks:
                learner.begin_task(task)
            for _ in range(WARM):
                self.step(task)
            if learner.needs_tasks and task < TASKS - 1:
                x, y = noise(data, task, self.draw)
                learner.end_task(task, x, torch.tensor(y))

    def step(self, task: int = TASKS - 1) -> tuple[float, int]:
        """Processor seconds and images through the backbone of one batch."""
        return timed(self.session, *noise(self.data, task, self.draw), task)


def held(session: Session) -> int:
    """Bytes beyond net and memory."""
    return session.learner.nbytes - session.learner.memory.nbytes


def measure(net: str, methods: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """Costs by method, all measured in one run."""
    candidates = {name: Candidate(name, DATA[net]) for name in methods}
    taken: dict[str, list[float]] = {name: [] for name in methods}
    images: dict[str, list[int]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            seconds, count = candidate.step()
            taken[name].append(seconds)
            images[name].append(count)
    base = taken["er"]
    return {
        name: {
            "images": statistics.mean(images[name]),
            "bytes": held(candidates[name].session),
            "time": round(
                statistics.median(t / e for t, e in zip(taken[name], base, strict=True)), 2
            ),
        }
        for name in methods
    }


def main() -> None:
    """Print the table, and keep it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--net", choices=DATA, default="mlp")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--methods", nargs="*", default=None, help="all by default")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    methods = options.methods or registry.names()
    methods = ["er", *(name for name in methods if name != "er")]
    found = measure(options.net, methods, options.rounds)
    print(f"{'method':12}{'images/step':>12}{'bytes':>14}{'time/ER':>9}")
    for name, row in sorted(found.items(), key=lambda item: item[1]["time"]):
        print(f"{name:12}{row['images']:12.0f}{row['bytes']:14,.0f}{row['time']:9.2f}")
    if options.write:
        kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        kept[options.net] = kept.get(options.net, {}) | found
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
