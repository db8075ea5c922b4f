"""How long a prediction takes: `python bench/predict.py`.

One 32x32 colour image and 1000 of them through Classifier.predict, against the bare network (the
same slim ResNet-18 in eval mode, floats in, features out). Both take turns; printed are medians by
the clock and by the processor, and the ratio of the processor's times.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import ocil

CLASSES = 10
Seconds = tuple[float, float]  # by the clock, by the processor


def timed(call: Callable[[], object]) -> Seconds:
    """What one call takes."""
    began = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--method", default="otc")
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw = np.random.default_rng(0)
    x = draw.integers(256, size=(1000, 32, 32, 3), dtype=np.uint8)
    y = np.arange(2 * CLASSES) % CLASSES
    model = ocil.Classifier(options.method, memory=50, net="resnet18", replay=10)
    model.partial_fit(x[: len(y)], y)
    assert model._learned is not None
    net = model._learned.session.learner.model.net.eval()
    print(f"{'images':>7}{'':19}{'clock ms':>10}{'cpu ms':>10}{'ratio':>8}")
    for count, rounds in ((1, 20 * options.rounds), (1000, options.rounds)):
        floats = torch.from_numpy(x[:count]).permute(0, 3, 1, 2).float().div(255)
        turns: list[tuple[Seconds, Seconds]] = []
        with torch.inference_mode():
            for _ in range(rounds + 2):
                bare = timed(lambda f=floats: [net(part) for part in f.split(256)])
                turns.append((bare, timed(lambda n=count: model.predict(x[:n]))))
        first = 0.0
        for row, label in enumerate(("bare network", "Classifier.predict")):
            clock, cpu = (statistics.median(1e3 * t[row][k] for t in turns[2:]) for k in (0, 1))
            first = first or cpu
            print(f"{count:7} {label:<18}{clock:10.2f}{cpu:10.2f}{cpu / first:8.2f}")


if __name__ == "__main__":
    main()
