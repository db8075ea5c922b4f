"""What one mixture update costs: batched against a loop over classes, and against a CE step.

    OMP_NUM_THREADS=1 python bench/mmot_step.py [--quick] [--out results/mixture]

74 points of 400 dimensions, K = 4, 10 and 50 classes in the batch; one thread; the candidates take
turns and the medians are compared. The loop below is the plain way to write the same update, class
by class, and the oracle: both must end with the same parameters.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from ocil.fields import from_mapping
from ocil.mixture import Mixtures, MixtureSettings, window
from ocil.mixture.moments import PRIOR

DIM, POINTS, KNOWN = 400, 74, (10, 100, 1000)
STEADY = from_mapping(MixtureSettings, {"start.again": None})  # clustering is timed on its own


class PlainLoop:
    """The default update of one class at a time, from a copy of the state of `Mixtures`."""

    def __init__(self, mixtures: Mixtures) -> None:
        self.s = mixtures.settings.window
        self.floor = mixtures.settings.floor
        state = mixtures.state_dict()
        self.base = state.pop("base")
        size = len(state["mu"])
        self.rows = [{k: v[c].clone() for k, v in state.items()} for c in range(size)]

    def update(self, z: Tensor, y: Tensor) -> None:
        """Group, then move each class in turn."""
        classes = y.unique().tolist()
        pooled = [self._class(self.rows[c], z[y == c]) for c in classes]
        self.base = self.base.lerp(torch.stack(pooled).mean(0), 0.05)

    def _class(self, row: dict[str, Tensor], x: Tensor) -> Tensor:
        s, before, past = self.s, int(row["count"]), int(row["first"])
        count = before + len(x)
        most = min(max(len(x), (s.points or 0) + (s.points or 0) // 2), s.queue)
        first = count - max(len(x), (s.points or 0)) if count - past > most else past
        if first > past:
            gone = torch.arange(past, first) % s.queue
            left = self._moments(row["resp"][gone].T, row["queue"][gone], row["old_mean"][0])
            old = (row["old_mass"], row["old_mean"], row["old_var"])
            mass, row["old_mean"], row["old_var"] = self._merge(old, left)
            row["old_mass"] = mass * (window.HORIZON / mass.sum().clamp(min=1e-12)).clamp(max=1)
        row["queue"][torch.arange(before, count) % s.queue] = x
        row["count"], row["first"] = torch.tensor(count), torch.tensor(first)
        places = torch.arange(first, count) % s.queue
        z = row["queue"][places]
        resp = self._plan(row, z)
        row["resp"][places] = resp.T
        new = self._moments(resp, z, row["mu"].mean(0))
        row["old_mass"] = self._discount(row, new)
        old = (row["old_mass"], row["old_mean"], row["old_var"])
        mass, row["mu"], var = self._merge(old, new)
        weight = mass.unsqueeze(1)
        pooled = ((weight * var).sum(0) + PRIOR * self.base) / (weight.sum(0) + PRIOR)
        var = (weight * var + PRIOR * pooled) / (weight + PRIOR)
        row["var"] = torch.maximum(var, self.floor * pooled.mean())
        row["log_pi"] = torch.log_softmax((mass + 0.5).log(), 0)
        return pooled

    def _plan(self, row: dict[str, Tensor], z: Tensor) -> Tensor:
        mu, shift = row["mu"], row["mu"].mean(0)
        precision, mu, z = 1 / row["var"], mu - shift, z - shift
        square = precision @ (z * z).T - 2 * (mu * precision) @ z.T
        square = square + (mu * mu * precision + row["var"].log()).sum(1, keepdim=True)
        scores = -0.5 * square + row["log_pi"].unsqueeze(1)
        g = torch.zeros_like(row["log_pi"])
        resp = torch.log_softmax(scores, 0).clamp(min=-60).exp()
        for _ in range(window.PLAN_STEPS):
            g = window.RELAX * (g + row["log_pi"] - resp.mean(1).log())
            resp = torch.log_softmax(scores + g.unsqueeze(1), 0).clamp(min=-60).exp()
        return resp

    def _discount(self, row: dict[str, Tensor], new: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        n, mean, _ = new
        mass = row["old_mass"]
        gap = ((mean - row["old_mean"]).square() / row["var"]).mean(1)
        past = mass > 1e-3
        kept = torch.where(past, n, 0.0)
        chance = torch.where(past, 1 + n / mass.clamp(min=1e-3), 0.0)
        excess = (kept * gap - window.DRIFT * chance).sum() / kept.sum().clamp(min=1e-12)
        return mass / (1 + mass * excess.clamp(min=0))

    @staticmethod
    def _moments(resp: Tensor, z: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mass, z = resp.sum(1), z - shift
        share = resp / mass.clamp(min=1e-38).unsqueeze(1)
        mean = share @ z
        var = (share @ (z * z) - mean * mean).clamp(min=0)
        return mass, mean + shift, var

    @staticmethod
    def _merge(
        a: tuple[Tensor, Tensor, Tensor], b: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        mass = a[0] + b[0]
        share = (b[0] / mass.clamp(min=1e-38)).unsqueeze(1)
        gap = b[1] - a[1]
        return mass, a[1] + share * gap, a[2] + share * (b[2] - a[2] + (1 - share) * gap * gap)


def warm(known: int, settings: MixtureSettings = STEADY, filled: int = 96) -> Mixtures:
    """Mixtures of `known` classes of random features, past seeding and with full queues."""
    generator = torch.Generator().manual_seed(known)
    mixtures = Mixtures(DIM, settings)
    for start in range(0, known, 50):
        labels = torch.arange(start, min(start + 50, known))
        for _ in range(filled // 16):
            y = labels.repeat_interleave(16)
            z = torch.randn(len(y), DIM, generator=generator) + 0.1 * y.unsqueeze(1)
            mixtures.update(z, y, generator)
    return mixtures


def batch(classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """74 points in which `classes` classes take turns."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(POINTS) % classes
    return torch.randn(POINTS, DIM, generator=generator) + 0.1 * y.unsqueeze(1), y


def cross_entropy_step() -> Callable[[], None]:
    """One AdamW step of the 784-400-400 MLP with a head of 10 on 74 images."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 10)
    )
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)
    x, y = torch.rand(POINTS, 784), torch.arange(POINTS) % 10

    def step() -> None:
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()

    return step


def medians(candidates: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Milliseconds of processor time (one thread: what the clock shows on an idle machine).

    Each candidate runs once per round, in an order drawn anew: what ran just before decides what
    the caches hold. The first rounds warm up.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    draw = random.Random(0)
    for turn in range(rounds + 3):
        for name in draw.sample(list(candidates), len(candidates)):
            start = time.process_time()
            candidates[name]()
            if turn >= 3:
                times[name].append(1e3 * (time.process_time() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def equal(classes: int) -> float:
    """Largest difference of any parameter after 5 updates, relative to the rms of its kind."""
    mixtures = warm(max(classes, 10))
    loop, generator = PlainLoop(mixtures), torch.Generator().manual_seed(0)
    for seed in range(5):
        z, y = batch(classes, seed)
        mixtures.update(z, y, generator)
        loop.update(z, y)
    worst = 0.0
    for name in ("mu", "var", "log_pi"):
        mine, plain = mixtures.store[name], torch.stack([row[name] for row in loop.rows])
        worst = max(worst, float((mine - plain).abs().max() / mine.square().mean().sqrt()))
    return worst


def measure(rounds: int) -> dict[str, float]:
    """All medians in one interleaved run."""
    generator, candidates = torch.Generator().manual_seed(0), {}
    for classes in (10, 50):
        loop = PlainLoop(warm(max(classes, 10)))
        z, y = batch(classes, 0)
        candidates[f"loop, {classes} in the batch"] = lambda z=z, y=y, u=loop: u.update(z, y)
        for known in KNOWN:
            if known >= classes:
                mixtures = warm(known)
                name = f"batched, {classes} in the batch, {known} known"
                candidates[name] = lambda z=z, y=y, u=mixtures: u.update(z, y, generator)
    real = warm(10, MixtureSettings())
    z, y = batch(10, 0)
    candidates["batched, 10 in the batch, 10 known, with clustering"] = lambda: real.update(
        z, y, generator
    )
    often = warm(10, from_mapping(MixtureSettings, {"start.again": 1}))
    candidates["batched, 10 in the batch, 10 known, all clustered"] = lambda: often.update(
        z, y, generator
    )
    candidates["CE step of the MLP"] = cross_entropy_step()
    return medians(candidates, rounds)


def main() -> None:
    """Measure, print the table of ratios and the bars, write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="15 rounds instead of 101")
    parser.add_argument("--out", type=Path, help="folder for mmot_step.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(15 if options.quick else 101)
    ce = found["CE step of the MLP"]
    print("| one update | ms | CE steps |\n|---|---|---|")
    for name, value in found.items():
        print(f"| {name} | {value:.2f} | {value / ce:.2f} |")
    ten, fifty = (
        found["batched, 10 in the batch, 10 known"],
        found["batched, 50 in the batch, 100 known"],
    )
    spread = [found[f"batched, 10 in the batch, {n} known"] for n in KNOWN]
    # of all points a class gets, one clustering falls on start.again of them
    share = POINTS / (MixtureSettings().start.again or 1) / 10
    extra = share * (found["batched, 10 in the batch, 10 known, all clustered"] - ten)
    bars = {
        "loop / batched, 10 classes (bar 4)": found["loop, 10 in the batch"] / ten,
        "loop / batched, 50 classes (bar 15)": found["loop, 50 in the batch"] / fifty,
        "1000 known / 10 known (bar about 1)": spread[-1] / spread[0],
        "update / CE step (bar 1)": ten / ce,
        "update with its share of challenges / CE step": (ten + extra) / ce,
        "largest difference from the loop, 10 classes": equal(10),
        "largest difference from the loop, 50 classes": equal(50),
    }
    print("\n| ratio | value |\n|---|---|")
    for name, value in bars.items():
        print(f"| {name} | {value:.3g} |")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        record = {"schema": 1, "torch": torch.__version__, "milliseconds": found, "ratios": bars}
        (options.out / "mmot_step.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
