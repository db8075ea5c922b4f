"""Processor milliseconds per call of each augmentation on one thread: `python bench/augment.py`.

The cells are measured in turns (one call each, again and again) so that a busy machine slows all of
them alike; printed is the median of the processor's time, which other work disturbs least.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from ocil import augment
from ocil.errors import OcilError

SHAPES = ((3, 32, 32), (3, 64, 64), (1, 28, 28))


def measure(images: int, rounds: int) -> dict[tuple[str, tuple[int, ...]], float]:
    """Median processor milliseconds for every (name, shape) that is possible."""
    generator = torch.Generator().manual_seed(0)
    batches = {shape: torch.rand(images, *shape, generator=generator) for shape in SHAPES}
    times: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    runs = {name: augment.build(name) for name in augment.NAMES}
    for _ in range(rounds + 3):
        for name, run in runs.items():
            for shape, x in batches.items():
                try:
                    augment.check(name, shape)
                except OcilError:
                    continue
                start = time.process_time()
                run(x, generator)
                times.setdefault((name, shape), []).append(time.process_time() - start)
    return {key: 1e3 * statistics.median(values[3:]) for key, values in times.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=74)
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells = measure(options.images, options.rounds)
    print(
        f"processor ms per call for {options.images} images, one thread, median of {options.rounds}"
    )
    print(f"{'':10}" + "".join(f"{'x'.join(map(str, shape)):>10}" for shape in SHAPES))
    for name in augment.NAMES:
        row = (f"{cells[name, s]:10.2f}" if (name, s) in cells else f"{'-':>10}" for s in SHAPES)
        print(f"{name:10}" + "".join(row))


if __name__ == "__main__":
    main()
