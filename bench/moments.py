"""Milliseconds to predict a sample and then learn it: `OMP_NUM_THREADS=1 python bench/moments.py`.

1 000 samples one by one, with the exact statistics and the discriminant of `ocil.moments`: from
nothing, and after 20 000 others. Then the same for learning alone with 100 and with 10 000 classes,
which must cost the same.
"""

from __future__ import annotations

import argparse
import time

import torch

from ocil.moments import ClassMoments


def milliseconds(moments: ClassMoments, classes: int, n: int, predict: bool) -> float:
    draw = torch.Generator().manual_seed(1)
    z = torch.randn(n, moments.dim, generator=draw)
    y = torch.randint(classes, (n,), generator=draw)
    began = time.process_time()
    for i in range(n):
        if predict and i:
            moments.scores(z[i : i + 1])
        moments.add(z[i : i + 1], y[i : i + 1])
    return 1000 * (time.process_time() - began) / n


def filled(dim: int, classes: int, n: int, keeps: bool = False) -> ClassMoments:
    moments = ClassMoments(dim, keeps=keeps)
    draw = torch.Generator().manual_seed(0)
    for at in range(0, n, 1000):
        y = torch.arange(at, at + 1000) % classes
        moments.add(torch.randn(1000, dim, generator=draw), y)
    return moments


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="*", default=[800, 2400])
    parser.add_argument("--samples", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    n = options.samples
    print(f"{'features':>8}{'from nothing':>14}{'after 20 000':>14}   ms a sample, 10 classes")
    for dim in options.dims:
        first = milliseconds(ClassMoments(dim, keeps=False), 10, n, predict=True)
        later = milliseconds(filled(dim, 10, 20_000), 10, n, predict=True)
        print(f"{dim:8}{first:14.2f}{later:14.2f}")
    few, many = (milliseconds(filled(800, c, 20_000), c, n, predict=False) for c in (100, 10_000))
    print(f"learning alone, 800 features: {few:.3f} ms with 100 classes, {many:.3f} with 10 000")


if __name__ == "__main__":
    main()
