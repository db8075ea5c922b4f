"""What changes the time of one training step: `python bench/step.py`.

One step = forward, backward and AdamW of a slim ResNet-18 with a head of ten classes on 10 stream
and 64 replayed images of 3x32x32. The variants of a group take turns, one step each in shuffled
order, so that a busy machine slows all of them alike; printed are the median time by the clock and
by the processor, and the median ratio of each to the group's first row in the same turn. Beside
other work trust the processor's ratio, except for threads, which only a quiet machine can judge.
In the last group every gradient of an MLP is
set to zero and the first moments to a normal or a denormal number, as those of inputs that have
long been silent become.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocil import augment, nets
from ocil.nets.heads import GrowingLinear
from ocil.nets.resnet import WINDOW, ResNet18

STREAM, REPLAY, CLASSES = 10, 64, 10
Seconds = tuple[float, float]  # by the clock, by the processor


@dataclass(frozen=True)
class Variant:
    """How one row of the table takes its steps; the defaults are the first row."""

    label: str
    net: str = "resnet18"
    shape: tuple[int, ...] = (3, 32, 32)
    layout: torch.memory_format = torch.contiguous_format
    passes: tuple[int, ...] = (STREAM + REPLAY,)
    foreach: bool | None = None
    fused: bool | None = None
    threads: int = 1
    flush: bool = False
    moment: float | None = None
    augment: str = "none"


LAST = torch.channels_last
MLP: dict[str, Any] = {"net": "mlp", "shape": (1, 28, 28)}
GROUPS = {
    "slim ResNet-18": (
        Variant("contiguous, one pass of 74, AdamW, 1 thread"),
        Variant("the same again (noise)"),
        Variant("channels last", layout=LAST),
        Variant("two passes, 10 + 64", passes=(STREAM, REPLAY)),
        Variant("AdamW foreach", foreach=True),
        Variant("AdamW fused", fused=True),
        Variant("flush denormals", flush=True),
        Variant("with augmentation 'full'", augment="full"),
    ),
    "slim ResNet-18, channels last": (
        Variant("one pass of 74, AdamW, 1 thread", layout=LAST),
        Variant("two passes, 10 + 64", layout=LAST, passes=(STREAM, REPLAY)),
        Variant("AdamW fused", layout=LAST, fused=True),
    ),
    "threads": (
        Variant("contiguous, 1 thread"),
        Variant("contiguous, 2 threads", threads=2),
        Variant("channels last, 1 thread", layout=LAST),
        Variant("channels last, 2 threads", layout=LAST, threads=2),
    ),
    "MLP 784-400-400": (
        Variant("AdamW", **MLP),
        Variant("AdamW foreach", **MLP, foreach=True),
        Variant("AdamW fused", **MLP, fused=True),
    ),
    "MLP, gradients zero": (
        Variant("moments 1e-4", **MLP, moment=1e-4),
        Variant("moments 1e-40", **MLP, moment=1e-40),
        Variant("moments 1e-40, flush denormals", **MLP, moment=1e-40, flush=True),
        Variant("moments 1e-4, fused", **MLP, moment=1e-4, fused=True),
        Variant("moments 1e-40, fused", **MLP, moment=1e-40, fused=True),
    ),
}


class Laid(nn.Module):
    """The ResNet in a given layout: its own forward always takes channels last."""

    def __init__(self, net: ResNet18, layout: torch.memory_format) -> None:
        super().__init__()
        self.net, self.layout = net, layout
        net.to(memory_format=layout)  # pyright: ignore[reportCallIssue]

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, features); fails if the maps are not laid out as the row's label says."""
        x = x.contiguous(memory_format=self.layout)
        x = F.relu(self.net.norm(self.net.conv(x)), inplace=True)
        for stage in self.net.stages:
            x = stage(x)
        if not x.is_contiguous(memory_format=self.layout):
            raise AssertionError(f"asked for {self.layout}, but the maps have strides {x.stride()}")
        return F.avg_pool2d(x, WINDOW).flatten(1)


def now() -> Seconds:
    """The time by the clock and the time the processor has worked for us."""
    return time.perf_counter(), time.process_time()


def stepper(variant: Variant) -> Callable[[], Seconds]:
    """A function that takes one step and returns what it took."""
    generator = torch.Generator().manual_seed(0)
    net = nets.build(variant.net, variant.shape, generator=generator)
    head = GrowingLinear(net.features, generator)  # pyright: ignore[reportArgumentType]
    head.grow(CLASSES)
    model = nn.Sequential(Laid(net, variant.layout) if isinstance(net, ResNet18) else net, head)
    optimiser = torch.optim.AdamW(
        model.parameters(),
        lr=5e-4,
        weight_decay=1e-4,
        foreach=variant.foreach,
        fused=variant.fused,
    )
    run = augment.build(variant.augment)
    x = torch.rand(STREAM + REPLAY, *variant.shape, generator=generator)
    y = torch.randint(CLASSES, (STREAM + REPLAY,), generator=generator)

    def learn(images: Tensor, labels: Tensor) -> None:
        F.cross_entropy(model(run(images, generator)), labels).backward()

    def quiet() -> None:
        for parameter, state in optimiser.state.items():
            state["exp_avg"].fill_(variant.moment)
            parameter.grad = torch.zeros_like(parameter)

    def step() -> Seconds:
        torch.set_num_threads(variant.threads)
        torch.set_flush_denormal(variant.flush)
        start = now()
        optimiser.zero_grad()
        for images, labels in zip(x.split(variant.passes), y.split(variant.passes), strict=True):
            learn(images, labels)
        middle = now()
        if variant.moment is not None:
            quiet()
        resumed = now()
        optimiser.step()
        end = now()
        torch.set_flush_denormal(False)
        clock, processor = (middle[i] - start[i] + end[i] - resumed[i] for i in (0, 1))
        return clock, processor

    return step


def report(title: str, variants: tuple[Variant, ...], rounds: int, warm: int = 3) -> None:
    """Measure the variants in turns and print one line for each."""
    steps, order = [stepper(variant) for variant in variants], random.Random(0)
    turns: list[dict[int, Seconds]] = []
    for _ in range(rounds + warm):
        shuffled = order.sample(range(len(steps)), len(steps))
        turns.append({index: steps[index]() for index in shuffled})
    print(f"{title + f', {rounds} steps':46}{'clock ms':>10}{'cpu ms':>10}{'clock':>8}{'cpu':>8}")
    for index, variant in enumerate(variants):
        line = f"  {variant.label:44}"
        for kind in (0, 1):
            line += f"{1e3 * statistics.median(turn[index][kind] for turn in turns[warm:]):10.2f}"
        for kind in (0, 1):
            ratios = (turn[index][kind] / turn[0][kind] for turn in turns[warm:])
            line += f"{statistics.median(ratios):8.3f}"
        print(line, flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    for title, variants in GROUPS.items():
        report(title, variants, options.rounds * (10 if "MLP" in title else 1))


if __name__ == "__main__":
    main()
