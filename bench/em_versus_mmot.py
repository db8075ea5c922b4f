"""EM against MMOT on a latent stream with drift recorded from a real run, and what each costs.

    OMP_NUM_THREADS=1 python bench/em_versus_mmot.py [--quick] [--seeds 3] [--out results/mixture]

The stream is that of `latent_stream.py`. Every way to keep class mixtures gets the same points in
the same order, all with K = 4 components: `sinkhorn` is MMOT as OTC has it by default; `dual` the
paper's objective and `nll` gradient steps on the likelihood, both from the points of the batch;
`em` plain stepwise EM; `em-queue` stepwise EM with the default's queue, window and seeding;
`em-window` has its averaging as well, so that only the plan differs; `em-task` batch EM on all
images of a task at its end and never again; `em-refit` batch EM on the memory every n steps.

Columns, medians over the seeds: negative log-likelihood of held-out (test) features under their own
class, per dimension, at the end of the stream, for all classes and for those of earlier tasks, with
variances shrunk as OTC reads them, and without (a few dimensions with hardly any variance then
decide); accuracy of OTC's read-out (similarity to the centroids) and of the paper's (Mahalanobis,
shrunk as well); processor time of an update with its share of the fits, the methods taking turns
at every step, and its ratio to sinkhorn's; peak memory of one update or fit; bytes held; images
that only the fits send through the net, a step. The second table has measured exponents beside the
paper's bounds (`mixture_costs.py`).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import latent_stream
import mixture_costs
import torch
from em_versus_mmot_report import draw_figure, markdown
from latent_stream import Features, Latents, Moment
from mixture_costs import made, plain_em
from torch import Tensor

from ocil.mixture import Mixtures
from ocil.mixture.distances import log_density
from ocil.mixture.refit import Refit

TAU = 0.2  # of OTC's read-out
FITS = {"em-task": "task", "em-refit": "memory"}  # what of a moment is fitted to
METHODS = {
    "sinkhorn": made("sinkhorn"),
    "dual": made("dual", points=None),
    "nll": made("nll", points=None),
    "em": plain_em(),
    "em-queue": made("stepwise-em"),
    "em-window": made("em"),
    "em-task": made("task-em"),
    "em-refit": made("refit-em"),
}


@dataclass
class Rival:
    """One way to keep the mixtures on its way through the stream."""

    name: str
    mixtures: Mixtures
    draw: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))
    seconds: float = 0.0
    images: int = 0  # extra ones through the net
    curve: list[dict[str, float]] = field(default_factory=list)

    def learn(self, moment: Moment) -> None:
        z, y = moment.points
        self.mixtures.update(z, y, self.draw)
        found = getattr(moment, FITS[self.name]) if self.name in FITS else None
        if found is not None and isinstance(self.mixtures.mover, Refit):
            z, y = found
            self.mixtures.mover.fit(z, y, self.draw)
            self.images += len(y)

    def timed(self, moment: Moment) -> None:
        began = time.process_time()
        self.learn(moment)
        self.seconds += time.process_time() - began


def rivals(dim: int) -> list[Rival]:
    """All of them, knowing nothing."""
    found = []
    for name, settings in METHODS.items():
        found.append(Rival(name, Mixtures(dim, replace(settings, shrinkage=0.9))))
    return found


@torch.no_grad()
def judge(mixtures: Mixtures, held_out: Features) -> dict[str, float]:
    """Likelihood per dimension (every class weighs the same) and accuracies, in percent."""
    z, y = held_out
    loss = by_class(mixtures.log_density(z), y) / z.shape[1]
    raw = log_density(z, mixtures.mu, mixtures.store["var"], mixtures.log_pi)
    similar = torch.einsum("nd,ckd->nck", z, torch.nn.functional.normalize(mixtures.mu, dim=2))
    similar = (similar / TAU).masked_fill(~mixtures.active, -torch.inf).logsumexp(2)
    return {
        "nll": float(loss.mean()),
        "nll_old": float(loss[:-2].mean()) if len(loss) > 2 else float("nan"),
        "nll_raw": float(by_class(raw, y).mean()) / z.shape[1],
        "similarity": percent(similar, y),
        "mahalanobis": percent(-mixtures.class_distances(z), y),
    }


def by_class(log_q: Tensor, y: Tensor) -> Tensor:
    """Mean of -log q(z | own class) for each class (C,)."""
    own = -log_q.gather(1, y.unsqueeze(1))[:, 0]
    return torch.stack([own[y == c].mean() for c in range(int(y.max()) + 1)])


def percent(scores: Tensor, y: Tensor) -> float:
    return 100 * float((scores.argmax(1) == y).float().mean())


def follow(latents: Latents) -> dict[str, dict[str, Any]]:
    """Everything that is asked of each method on one stream."""
    runners, order = rivals(latents.dim), random.Random(0)
    for step, moment in enumerate(latents.moments, start=1):
        for rival in order.sample(runners, len(runners)):
            rival.timed(moment)
            if moment.held_out:
                rival.curve.append({"step": step} | judge(rival.mixtures, moment.held_out))
    steps = len(latents.moments)
    return {
        rival.name: rival.curve[-1]
        | {
            "ms": 1e3 * rival.seconds / steps,
            "peak_kb": peak(rival, latents),
            "held_kb": rival.mixtures.nbytes / 1e3,
            "images": rival.images / steps,
            "curve": rival.curve,
        }
        for rival in runners
    }


def peak(rival: Rival, latents: Latents) -> float:
    """Of the last moment once more, with all its fits, by mixtures that have no work space yet."""
    again = Mixtures(latents.dim, rival.mixtures.settings)
    again.load_state_dict(rival.mixtures.state_dict(), len(rival.mixtures))
    moment = latents.moments[-1]
    return mixture_costs.peak_kilobytes(lambda: Rival(rival.name, again).learn(moment))


def summary(runs: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Medians over the seeds; the ratio is taken in each run."""
    found = {}
    for name in METHODS:
        keys = [key for key in runs[0][name] if key not in ("curve", "step")]
        middle = {key: statistics.median(run[name][key] for run in runs) for key in keys}
        ratio = statistics.median(run[name]["ms"] / run["sinkhorn"]["ms"] for run in runs)
        found[name] = middle | {"ratio": ratio}
    return found


def main() -> None:
    """Record, compare, measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short stream, few repetitions")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=500, help="training images a class")
    parser.add_argument("--out", type=Path, help="folder for em_versus_mmot.{json,md,png}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(1 if options.quick else options.seeds)
    streams = [latent_stream.record(seed, 60 if options.quick else options.limit) for seed in seeds]
    runs = [follow(latents) for latents in streams]
    often = (1, 2) if options.quick else (5, 5)
    costs = {q: mixture_costs.growth(q, *often) for q in mixture_costs.RANGES}
    record = {
        "schema": 1,
        "torch": torch.__version__,
        "seeds": list(seeds),
        "stream": streams[0].settings,
        "steps": len(streams[0].moments),
        "drift": statistics.median(latent_stream.drift(latents) for latents in streams),
        "settings": {name: asdict(s) for name, s in METHODS.items()},
        "summary": summary(runs),
        "runs": runs,
        "costs": {q: {m: g._asdict() for m, g in found.items()} for q, found in costs.items()},
    }
    text = markdown(record)
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        content = json.dumps(record, indent=1).replace("NaN", "null")
        (options.out / "em_versus_mmot.json").write_text(content + "\n")
        (options.out / "em_versus_mmot.md").write_text(text)
        draw_figure(record, options.out / "em_versus_mmot.png")


if __name__ == "__main__":
    main()
