"""What changes the time of one training step: `python bench/step.py`.

One step = forward, backward and AdamW of a slim ResNet-18 with a head of ten classes on 10 stream
and 64 replayed images of 3x32x32. The variants take turns, one step each, so that a busy machine
slows all of them alike; printed are medians, and ratios to the first row measured in the same turn.
The last rows take an MLP whose first moments have decayed to denormal numbers, as those of inputs
that have long been silent do.
"""

from __future__ import annotations

import argparse
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

STREAM, REPLAY, CLASSES = 10, 64, 10


@dataclass(frozen=True)
class Variant:
    """How one row of the table takes its steps; the defaults are the first row."""

    label: str
    net: str = "resnet18"
    shape: tuple[int, ...] = (3, 32, 32)
    layout: torch.memory_format = torch.contiguous_format
    passes: tuple[int, ...] = (STREAM + REPLAY,)
    optimiser: tuple[tuple[str, bool], ...] = ()
    threads: int = 1
    flush: bool = False
    denormal: bool = False
    augment: str = "none"


LAST, FUSED = torch.channels_last, (("fused", True),)
MLP: dict[str, Any] = {"net": "mlp", "shape": (1, 28, 28)}
NETWORK = (
    Variant("contiguous, one pass of 74, AdamW, 1 thread"),
    Variant("channels last", layout=LAST),
    Variant("two passes, 10 + 64", passes=(STREAM, REPLAY)),
    Variant("AdamW foreach", optimiser=(("foreach", True),)),
    Variant("AdamW fused", optimiser=FUSED),
    Variant("flush denormals", flush=True),
    Variant("2 threads", threads=2),
    Variant("channels last, AdamW fused", layout=LAST, optimiser=FUSED),
    Variant("channels last, two passes", layout=LAST, passes=(STREAM, REPLAY)),
    Variant("channels last, AdamW fused, 2 threads", layout=LAST, optimiser=FUSED, threads=2),
    Variant("with augmentation 'full'", augment="full"),
)
MOMENTS = (
    Variant("MLP 784-400-400", **MLP),
    Variant("AdamW foreach", **MLP, optimiser=(("foreach", True),)),
    Variant("AdamW fused", **MLP, optimiser=FUSED),
    Variant("denormal moments", **MLP, denormal=True),
    Variant("denormal moments, AdamW fused", **MLP, denormal=True, optimiser=FUSED),
    Variant("denormal moments, flush denormals", **MLP, denormal=True, flush=True),
)


def stepper(variant: Variant) -> Callable[[], float]:
    """A function that takes one step and returns its seconds."""
    generator = torch.Generator().manual_seed(0)
    net = nets.build(variant.net, variant.shape, generator=generator)
    head = GrowingLinear(net.features, generator)  # pyright: ignore[reportArgumentType]
    head.grow(CLASSES)
    model = nn.Sequential(net, head).to(memory_format=variant.layout)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=5e-4, weight_decay=1e-4, **dict(variant.optimiser)
    )
    run = augment.build(variant.augment)
    x = torch.rand(STREAM + REPLAY, *variant.shape, generator=generator)
    y = torch.randint(CLASSES, (STREAM + REPLAY,), generator=generator)

    def learn(images: Tensor, labels: Tensor) -> None:
        images = run(images, generator).contiguous(memory_format=variant.layout)
        F.cross_entropy(model(images), labels).backward()

    def step() -> float:
        torch.set_num_threads(variant.threads)
        torch.set_flush_denormal(variant.flush)
        if variant.denormal and optimiser.state:
            for state in optimiser.state.values():
                state["exp_avg"].fill_(1e-40)
            model.requires_grad_(True)
        start = time.perf_counter()
        optimiser.zero_grad()
        for images, labels in zip(x.split(variant.passes), y.split(variant.passes), strict=True):
            learn(images, labels)
        if variant.denormal:  # the gradient that keeps a moment denormal is zero
            for parameter in model.parameters():
                torch.zero_(parameter.grad) if parameter.grad is not None else None
        optimiser.step()
        seconds = time.perf_counter() - start
        torch.set_flush_denormal(False)
        return seconds

    return step


def report(variants: tuple[Variant, ...], rounds: int, warm: int = 3) -> None:
    """Measure the variants in turns and print one line for each."""
    steps = [stepper(variant) for variant in variants]
    times = [[step() for step in steps] for _ in range(rounds + warm)][warm:]
    for index, variant in enumerate(variants):
        median = statistics.median(turn[index] for turn in times)
        ratio = statistics.median(turn[index] / turn[0] for turn in times)
        print(f"{variant.label:48}{1e3 * median:10.2f}{ratio:8.3f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    print(f"{'median of ' + str(options.rounds) + ' steps':48}{'ms':>10}{'ratio':>8}")
    report(NETWORK, options.rounds)
    report(MOMENTS, 5 * options.rounds)


if __name__ == "__main__":
    main()
