"""What a step of ER costs beside its network: `python bench/replay.py`.

First table: a step with a full memory of 100 000 images against one of 500 (MLP, 28x28, 10 + 64
images, no augmentation), the two taking turns. Second table: a step of ER without augmentation
against its network's own forward, backward and optimiser step on the same 74 images. Third table:
the same for the slim ResNet-18 on 32x32 colour images with augmentation `full`. One thread, medians
of the turns.
"""

from __future__ import annotations

import statistics
import time

import torch
import torch.nn.functional as F

from ocil.learners.er import ErSettings
from ocil.learners.replay import ReplayLearner
from ocil.session import Session
from ocil.stream import Batch

SHAPE, STREAM, REPLAY = (1, 28, 28), 10, 64
TURNS = 400


def session(memory: int, ema: float = 0.995, shape=SHAPE, **changes) -> Session:
    """A session whose memory is full."""
    made = Session("er", ErSettings(memory=memory, ema=ema, **changes), shape)
    draw = torch.Generator().manual_seed(0)
    store = made.learner.memory
    made.learn(torch.zeros(10, *shape, dtype=torch.uint8), list(range(10)))
    for _ in range(memory // 500):
        x = torch.randint(256, (500, *shape), dtype=torch.uint8, generator=draw)
        store.reservoir(x, torch.randint(10, (500,), generator=draw), made.generators["memory"])
    return made


def timed(action, *given) -> float:
    began = time.perf_counter()
    action(*given)
    return 1e3 * (time.perf_counter() - began)


def network_only(made: Session, x: torch.Tensor, y: torch.Tensor) -> None:
    learner = made.learner
    assert isinstance(learner, ReplayLearner)
    loss = F.cross_entropy(learner.model(x), y)
    learner.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    learner.optimizer.step()


def row(name: str, times: list[float], ratio: list[float]) -> str:
    return f"| {name} | {statistics.median(times):.2f} | {statistics.median(ratio):.3f} |"


def main() -> None:
    torch.set_num_threads(1)
    batch = Batch(torch.zeros(STREAM, *SHAPE, dtype=torch.uint8), torch.arange(STREAM))
    small, large = session(500), session(100_000)
    a, b = [], []
    for turn in range(TURNS):
        pair = [(small, a), (large, b)]
        for made, times in pair if turn % 2 else reversed(pair):
            times.append(timed(made.learner.learn, batch))
    print("| memory | ms a step | ratio |\n|---|---|---|")
    print(row("500", a, [1.0]))
    print(row("100 000", b, [y / x for x, y in zip(a, b, strict=True)]))

    print("\n| what | ms | ratio to the network |\n|---|---|---|")
    for ema, label in ((0.0, "MLP without the average"), (0.995, "MLP with the average")):
        beside_the_network(session(500, ema), SHAPE, label, TURNS)
    colour = (3, 32, 32)
    made = session(1000, 0.995, colour, net="resnet18", augment="full")
    beside_the_network(made, colour, "ResNet-18, full, average", TURNS // 20)


def beside_the_network(made: Session, shape: tuple[int, ...], label: str, turns: int) -> None:
    """Rows for the network alone, a whole step, and the difference, the two taking turns."""
    x, y = torch.rand(STREAM + REPLAY, *shape), torch.arange(STREAM + REPLAY) % 10
    batch = Batch(torch.zeros(STREAM, *shape, dtype=torch.uint8), torch.arange(STREAM))
    whole, bare = [], []
    for _ in range(turns):
        bare.append(timed(network_only, made, x, y))
        whole.append(timed(made.learner.learn, batch))
    beside = [w - n for w, n in zip(whole, bare, strict=True)]
    print(row(f"network, {label}", bare, [1.0]))
    print(row(f"step, {label}", whole, [w / n for w, n in zip(whole, bare, strict=True)]))
    print(f"| everything else, {label} | {statistics.median(beside):.2f} | |")


if __name__ == "__main__":
    main()
