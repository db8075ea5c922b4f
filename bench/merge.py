"""What merging costs and how far it goes: `OMP_NUM_THREADS=1 python bench/merge.py`.

    shards   seconds to merge the sums of 1 to 64 shards, in the space of slda's encoder
    small    1 to 10 000 shards of 20 samples: seconds, levels of the tree, rounding
    mnist    MNIST in 16 shards by class and in 16 at random, merged, beside a single pass
    costs    samples a second by one core, for vectors and for images; bytes
    ray      one and two Ray workers on the same job (`--images` long), start of Ray apart

Times are of the processor but for `ray`, which goes by the clock; `load` is what else was going on.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocil import Classifier, load_data
from ocil.commands.learn_ray import FAN
from ocil.learners.encoder import Encoder
from ocil.merging import encoder_of
from ocil.moments import ClassMoments
from ocil.moments.discriminant import last_due

PARTS = ("shards", "small", "mnist", "costs", "ray")


def seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def made(dim: int, n: int, classes: int, seed: int, shift: Tensor) -> ClassMoments:
    """Sums of n random samples."""
    draw = torch.Generator().manual_seed(seed)
    sums = ClassMoments(dim)
    sums.shift = shift
    sums.add(torch.randn(n, dim, generator=draw) + 1, torch.randint(classes, (n,), generator=draw))
    return sums


def shards() -> None:
    dim, shift = 2250, torch.full((2250,), 0.5)
    apart = [made(dim, 200, 10, seed, shift if seed % 2 else shift * 0.9) for seed in range(4)]
    print(f"{'shards':>8} {'one encoder, s':>15} {'other shifts, s':>16}   d = {dim}")
    for count in (1, 2, 4, 8, 16, 32, 64):
        took = []
        for step in (2, 1):  # every second has the same shift
            total, chosen = ClassMoments(dim), [apart[(1 + i * step) % 4] for i in range(count)]
            took.append(seconds(lambda t=total, c=chosen: [t.merge(each) for each in c]))
        print(f"{count:8} {took[0]:15.2f} {took[1]:16.2f}", flush=True)
    total = ClassMoments(dim)
    total.merge(made(dim, 3000, 10, 9, shift))
    last = seconds(lambda: total.choose(total.kept.kept, total.kept.kept_labels))
    print(f"the shrinkage is chosen once in the end: {last:.1f} s")


def tree(level: list[ClassMoments]) -> tuple[ClassMoments, int]:
    """The sum, eight at a time, and how many levels that takes."""
    depth = 0
    while len(level) > 1:
        above = []
        for start in range(0, len(level), FAN):
            total = ClassMoments(level[0].dim)
            for each in level[start : start + FAN]:
                total.merge(each)
            above.append(total)
        level, depth = above, depth + 1
    return level[0], depth


def small() -> None:
    dim = 64
    shift = torch.full((dim,), 0.5)
    print("  merges  levels  tree, s  ms a merge  rounding  kept", f"  d = {dim}, 20 samples each")
    for count in (1, 10, 100, 1000, 10_000):
        leaves = [made(dim, 20, 10, seed, shift) for seed in range(count)]
        exact = torch.zeros(dim, dim, dtype=torch.float64)
        for seed in range(count):
            draw = torch.Generator().manual_seed(seed)
            x = (torch.randn(20, dim, generator=draw) + 1 - shift).double()
            exact += x.T @ x
        found: list[Any] = []
        took = seconds(lambda f=found, n=leaves: f.extend(tree(n)))
        total, depth = found
        off = float((total._settled().second.whole() - exact).abs().max() / exact.abs().max())
        each, kept = 1000 * took / count, len(total._settled().kept.kept)
        print(f"{count:8} {depth:7} {took:8.2f} {each:11.3f} {off:9.1e} {kept:5}", flush=True)


def mnist(limit: int) -> None:
    data = load_data("mnist")
    order = np.random.default_rng(0).permutation(len(data.train_labels))[:limit]
    x, y = torch.from_numpy(data.train_images[order]), torch.from_numpy(data.train_labels[order])
    maker = Classifier("slda", memory=None, net="patches").partial_fit(x[:300], y[:300].numpy())
    encoder = encoder_of(maker._fitted().session.learner)
    assert encoder is not None
    ways = {
        "16 shards at random": torch.arange(len(y)) % 16,
        "16 shards by class": y.argsort(stable=True).argsort() * 16 // len(y),
    }
    single, took = ClassMoments(encoder.encode(x[:1]).shape[1]), time.process_time()
    sums = {way: [ClassMoments(single.dim) for _ in range(16)] for way in ways}
    for start in range(0, len(y), 2000):
        z, own = encoder.encode(x[start : start + 2000]), y[start : start + 2000]
        single.add(z, own)
        for way, shard in ways.items():
            for s, each in enumerate(sums[way]):
                which = shard[start : start + 2000] == s
                if bool(which.any()):
                    each.add(z[which], own[which])
    merged = {"single pass": single} | {way: tree(each)[0] for way, each in sums.items()}
    for total in list(merged.values())[1:]:
        total.choose(total.kept.kept, total.kept.kept_labels, last_due(total.total))
    features = [(encoder.encode(torch.from_numpy(data.test_images[i : i + 1000].copy())), i)
                for i in range(0, len(data.test_labels), 1000)]  # fmt: skip
    print(f"{'MNIST, slda':>22} {'accuracy %':>11} {'apart':>6} {'answers that differ':>20}"
          f"   {len(y)} images, d = {single.dim}")  # fmt: skip
    first: Tensor | None = None
    for name, total in merged.items():
        said = torch.cat([total.scores(z).argmax(1) for z, _ in features])
        right = 100 * float((said == torch.from_numpy(data.test_labels)).double().mean())
        first = said if first is None else first
        base = 100 * float((first == torch.from_numpy(data.test_labels)).double().mean())
        other = int((said != first).sum())
        print(f"{name:>22} {right:11.2f} {right - base:6.2f} {other:20}", flush=True)
    print(f"{time.process_time() - took:.0f} s of the processor")


def rate(encoder: Encoder, x: Tensor, classes: int) -> tuple[float, float, int]:
    """Samples a second that one core encodes, and counts; and the number of features."""
    encoder.encode(x[:2])
    z: list[Tensor] = []
    coded = seconds(lambda: z.append(encoder.encode(x)))
    sums = ClassMoments(z[0].shape[1], keeps=False)
    y = torch.arange(len(x)) % classes
    counted = seconds(lambda: sums.count(z[0], y))
    return len(x) / coded, len(x) / counted, sums.dim


def costs() -> None:
    print(f"{'items':>26} {'features':>9} {'encoded /s':>11} {'counted /s':>11} {'both /s':>8}"
          f" {'MB shared':>10} {'kB a class':>11}")  # fmt: skip
    draw = torch.Generator().manual_seed(0)
    kinds: list[tuple[str, tuple[int, ...], dict[str, Any]]] = [
        ("768 numbers, random 1024", (768,), {"net": "random", "width": 1024}),
        ("1024 numbers as they are", (1024,), {"net": "identity"}),
        ("28x28 grey", (1, 28, 28), {"net": "patches"}),
        ("32x32 colour", (3, 32, 32), {"net": "patches"}),
        ("64x64 colour", (3, 64, 64), {"net": "patches"}),
    ]
    for name, shape, settings in kinds:
        n = 4000 if len(shape) == 1 else 600
        x = torch.randn(n, *shape, generator=draw)
        if len(shape) == 3:
            x = torch.randint(256, (n, *shape), generator=draw, dtype=torch.uint8)
        model = Classifier("slda", memory=None, **settings)
        model.partial_fit(x[:300].numpy(), np.arange(300) % 10)
        encoder = encoder_of(model._fitted().session.learner)
        assert encoder is not None
        coded, counted, d = rate(encoder, x, 10)
        both, shared = 1 / (1 / coded + 1 / counted), 2 * d * (d + 128) / 1e6
        print(f"{name:>26} {d:9} {coded:11.0f} {counted:11.0f} {both:8.0f} {shared:10.1f}"
              f" {8 * (d + 1) / 1e3:11.1f}", flush=True)  # fmt: skip


def ray(images: int) -> None:
    """The same shards by `ocil learn --on ray` with one and with two workers."""
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "shards"
        place.mkdir()
        x, y = np.zeros((0, 28, 28)), np.arange(images // 32) % 10
        for i in range(32):
            x = draw.integers(0, 200, (len(y), 28, 28)) + 5 * y[:, None, None]
            np.savez(place / f"{i}.npz", x=x.astype(np.uint8), y=y)
        maker = Classifier("slda", memory=None, net="patches")
        maker.partial_fit(x[:300].astype(np.uint8), y[:300]).save(Path(folder) / "first.ocil")
        took = {}
        for workers in (1, 2):
            words = ["learn", str(place), "--model", f"{folder}/{workers}.ocil", "--on", "ray"]
            words += ["--encoder-of", f"{folder}/first.ocil", "--workers", str(workers)]
            call = [sys.executable, "-m", "ocil", *words]
            said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
            found = re.search(r"in ([\d.]+) s \(([\d.]+) s to start", said)
            assert found, said
            took[workers], start = map(float, found.groups())
            load = os.getloadavg()[0]
            print(f"{images} images, {workers} workers: {took[workers]:.1f} s, start of Ray "
                  f"{start:.1f} s, load {load:.1f}", flush=True)  # fmt: skip
        print(f"two workers are {took[1] / took[2]:.2f} times faster than one")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS[:-1], help=", ".join(PARTS))
    parser.add_argument("--images", type=int, default=320_000, help="of `ray`, 9600 or more")
    parser.add_argument("--limit", type=int, default=60_000, help="images of `mnist`")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for part in asked.parts:
        print(f"# {part}, load {os.getloadavg()[0]:.1f}", flush=True)
        {"shards": shards, "small": small, "mnist": lambda: mnist(asked.limit), "costs": costs,
         "ray": lambda: ray(asked.images)}[part]()  # fmt: skip


if __name__ == "__main__":
    main()
