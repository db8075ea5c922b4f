"""What 10 000 classes cost and how well they are told apart: `python bench/many_classes.py`.

Synthetic features (d = 64, 20 samples a class, class by class) go to Classifier(net="identity") in
batches of 10: mixtures only, no head to train. The noise is such that a nearest class mean that saw
everything at once gets 70 to 85 % right. On the way to each number of classes the last 200 batches
take turns with those of a second classifier that stands at 100 classes, so that a busy machine
slows both alike; printed are the medians of `partial_fit` by the processor, and the median ratio.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time

import numpy as np
import torch

import ocil

DIM, SAMPLES, BATCH = 64, 20, 10
MARKS = (300, 1000, 3000, 10_000)
FEW, TURNS = 100, 200  # classes of the second classifier; batches of each that are timed


def stream(classes: int, noise: float, tests: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Training features class by class, their labels, and test features with theirs."""
    draw = np.random.default_rng(seed)
    centres = draw.standard_normal((classes, DIM), dtype=np.float32)
    y = np.arange(classes).repeat(SAMPLES)
    x = centres[y] + noise * draw.standard_normal((len(y), DIM), dtype=np.float32)
    test_y = draw.integers(classes, size=tests)
    test_x = centres[test_y] + noise * draw.standard_normal((tests, DIM), dtype=np.float32)
    return x, y, test_x, test_y


def class_mean_accuracy(
    x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray
) -> float:
    """Percent right of the nearest class mean over all training features."""
    means = torch.from_numpy(x).view(y.max() + 1, SAMPLES, DIM).mean(1)
    parts = torch.from_numpy(test_x).split(500)
    answers = torch.cat([torch.cdist(part, means).argmin(1) for part in parts])
    return 100 * float(np.mean(answers.numpy() == test_y))


def took(model: ocil.Classifier, x: np.ndarray, y: np.ndarray) -> float:
    """Milliseconds of the processor for one batch."""
    began = time.process_time()
    model.partial_fit(x, y)
    return 1e3 * (time.process_time() - began)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--classes", type=int, default=10_000)
    parser.add_argument("--noise", type=float, default=1.5)
    parser.add_argument("--tests", type=int, default=5000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    x, y, test_x, test_y = stream(options.classes, options.noise, options.tests)
    model = ocil.Classifier("otc", memory=20_000, net="identity")
    small = twin = model
    print(f"{'classes':>8}{'ms here':>10}{'ms at 100':>11}{'ratio':>8}", flush=True)
    pairs: list[tuple[float, float]] = []
    for start in range(0, len(y), BATCH):
        part, known = slice(start, start + BATCH), start // SAMPLES
        if known == FEW and start % SAMPLES == 0:
            small = copy.deepcopy(model)
        mark = next((m for m in MARKS if known < m <= known + TURNS * BATCH // SAMPLES), None)
        if mark is None or known < FEW:
            model.partial_fit(x[part], y[part])
            continue
        if not pairs:
            twin = copy.deepcopy(small)
        there = slice(FEW * SAMPLES + len(pairs) * BATCH, FEW * SAMPLES + (len(pairs) + 1) * BATCH)
        beside = took(twin, x[there], y[there])
        pairs.append((took(model, x[part], y[part]), beside))
        if start + BATCH == mark * SAMPLES:
            here, before = (statistics.median(side) for side in zip(*pairs, strict=True))
            ratio = statistics.median(a / b for a, b in pairs)
            print(f"{mark:8}{here:10.3f}{before:11.3f}{ratio:8.2f}", flush=True)
            pairs = []
    accuracy = 100 * model.score(test_x, test_y)
    oracle = class_mean_accuracy(x, y, test_x, test_y)
    print(f"accuracy {accuracy:.2f} %, class mean that saw everything {oracle:.2f} %")


if __name__ == "__main__":
    main()
