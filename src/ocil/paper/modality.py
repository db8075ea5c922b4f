"""Do classes stay multi-modal? Held-out likelihood of their features under K Gaussians.

For the test features of a class, cut into halves A and B at random,

    NLL(K) = -(1/|B|) sum_{z in B} log sum_k pi_k N(z; mu_k, diag(sigma_k^2))

where EM fits the mixture on A (scikit-learn's GaussianMixture). Each half is fitted in turn, for
several cuts; the mean over classes is what is told. More components than a class needs fit A
better and B worse, so NLL falls with K only while there is something to find.

What is found need not be modes: several Gaussians also follow a class with one mode and heavy
tails, or a slanted one. So the likelihood under one Student t distribution is told beside them,
with a diagonal and with a full scale matrix (`student`). It has one mode; what K Gaussians have
over it is what tails and slant do not explain.

Features have hundreds of dimensions and a class a few hundred points: the `DIMENSIONS` directions
of largest variance over all test features of the run are kept, and each is divided by its
deviation within classes. That shifts every NLL of a run by the same constant, and makes the floor
of the variances (`FLOOR`) mean the same in every run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocil.errors import OcilError
from ocil.paper import student
from ocil.paper.claims import EVERYWHERE, Comparison, fits
from ocil.paper.evidence import Finding
from ocil.report import style
from ocil.report.charts import Chart, Series
from ocil.report.latent import Kept, find_latents, principal, titles
from ocil.report.panels import sweep_chart
from ocil.report.render import Cell, Strong, Table
from ocil.report.runs import Run
from ocil.run import metrics
from ocil.run.latentfile import Latents

COMPONENTS = tuple(range(1, 9))
DIMENSIONS = 16
CUTS = 5
FLOOR = 0.01  # added to variances, which are one on average
STARTS = 3  # of EM, of which the likeliest counts
FEWEST = 40  # points: a half must feed eight components

Points = NDArray[np.float64]  # (n, d)


class Modality(NamedTuple):
    """NLL in nats per sample, a row for each class."""

    title: str
    gaussians: NDArray[np.float64]  # (classes, K)
    students: NDArray[np.float64]  # (classes, 2): with a diagonal and with a full scale matrix
    kept: float  # share of the variance in the directions kept

    @property
    def best(self) -> int:
        """K of the least mean NLL."""
        return int(self.gaussians.mean(0).argmin()) + 1

    def gain(self, k: int) -> tuple[float, float, float]:
        """NLL(1) - NLL(k): mean over classes and its 95 % interval."""
        return _difference(self.gaussians[:, 0], self.gaussians[:, k - 1])

    def beyond_one_mode(self) -> tuple[float, float, float]:
        """NLL of the better Student t minus that of the best K: above 0, tails do not explain K."""
        return _difference(self.best_student, self.gaussians[:, self.best - 1])

    @property
    def best_student(self) -> NDArray[np.float64]:
        """NLL of each class under the better of the two Student t."""
        return self.students[:, self.students.mean(0).argmin()]


def _difference(a: NDArray[np.float64], b: NDArray[np.float64]) -> tuple[float, float, float]:
    return metrics.paired_difference(a.tolist(), b.tolist())


def modalities(kept: Sequence[Kept], dims: int = DIMENSIONS) -> list[Modality]:
    """One for each run."""
    return [modality(k.latents, t, dims) for k, t in zip(kept, titles(kept), strict=True)]


def modality(latents: Latents, title: str, dims: int = DIMENSIONS) -> Modality:
    """Of the features of one run; classes with fewer than `FEWEST` points are left out."""
    points, kept = principal(latents.features, dims)
    classes = [points[latents.labels == c] for c in np.unique(latents.labels)]
    classes = [own for own in classes if len(own) >= FEWEST]
    if len(classes) < 2:
        raise OcilError(
            f"{title}: modality needs two classes with {FEWEST} or more test features each; use a "
            "data set with fewer classes."
        )
    within = np.concatenate([own - own.mean(0) for own in classes]).std(0)
    scale = np.where(within > 1e-9 * within.max(), within, 1.0)
    gaussians = [held_out(own / scale) for own in classes]
    students = [held_out_student(own / scale) for own in classes]
    return Modality(title, np.array(gaussians), np.array(students), kept)


def held_out(points: Points) -> list[float]:
    """NLL(K) of the points (n, d) of a class, for each K of `COMPONENTS`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    kind = {"covariance_type": "diag", "reg_covar": FLOOR, "n_init": STARTS, "random_state": 0}
    with warnings.catch_warnings(), threadpool_limits(1):  # small products: threads only wait
        warnings.simplefilter("ignore", ConvergenceWarning)  # points that are all the same
        scores = [
            [-GaussianMixture(k, **kind).fit(a).score(b) for k in COMPONENTS]
            for a, b in halves(points)
        ]
    return np.mean(scores, axis=0).tolist()


def held_out_student(points: Points) -> list[float]:
    """NLL of the points (n, d) of a class under one Student t, diagonal and full."""
    scores = [
        [student.fit(a, FLOOR, slanted).nll(b) for slanted in (False, True)]
        for a, b in halves(points)
    ]
    return np.mean(scores, axis=0).tolist()


def halves(points: Points) -> Iterator[tuple[Points, Points]]:
    """`CUTS` random cuts into halves, both ways round; the same at every call."""
    draw = np.random.default_rng(0)
    for _ in range(CUTS):
        a, b = np.array_split(draw.permutation(points), 2)
        yield a, b
        yield b, a


def modality_findings(comparison: Comparison, runs: Sequence[Run]) -> Iterator[Finding]:
    """For each run with latents: NLL of the better Student t less that of the best K, by class."""
    wanted = {**EVERYWHERE, **comparison.where}
    for kept in find_latents((run for run in runs if fits(run.settings, wanted)), skip_bad=True):
        try:
            found = modality(kept.latents, kept.run.name)
        except OcilError:  # too few features a class
            continue
        gaps = found.best_student - found.gaussians[:, found.best - 1]
        sides = comparison.left, comparison.right
        about, names = kept.run.settings, frozenset({kept.run.name})
        yield Finding(comparison, *sides, about, gaps.tolist(), names, "classes")


def modality_table(found: Sequence[Modality]) -> Table:
    """A row per run: NLL for each K, the least strong; of Student t; and what the best K gains."""
    mixtures = tuple(f"K={k}" for k in COMPONENTS)
    columns = ("run", *mixtures, "t", "full t", "gain", "beyond t", "variance")
    rows: list[list[Cell]] = []
    for m in found:
        cells = [f"{nll:.2f}" for nll in m.gaussians.mean(0)]
        shown = [Strong(c) if k == m.best else c for k, c in zip(COMPONENTS, cells, strict=True)]
        ones = [f"{nll:.2f}" for nll in m.students.mean(0)]
        gains = [
            f"{d:.1f} ({a:.1f} to {b:.1f})" for d, a, b in (m.gain(m.best), m.beyond_one_mode())
        ]
        rows.append([m.title, *shown, *ones, *gains, f"{100 * m.kept:.0f} %"])
    return Table(columns, rows, ("run",))


def explanation(dims: int) -> str:
    """What the numbers of the table are, for beside it."""
    return (
        "Held-out negative log-likelihood (nats per test feature) of a class under K diagonal "
        "Gaussians, fitted on one half of its test features and evaluated on the other; mean over "
        f"classes and {CUTS} cuts, each half fitted in turn. Before, features are reduced to the "
        f"{dims} directions of largest variance of their run (PCA; `variance` is what they keep) "
        f"and scaled to unit deviation within classes; {FLOOR} is added to variances. `t` and "
        "`full t` are one Student t distribution with a diagonal and a full scale matrix: one "
        "mode, heavy tails. `gain` is what the best K saves against K = 1, `beyond t` against the "
        "better t, with 95 % intervals over classes: where `beyond t` is below 0, one mode with "
        "heavy tails describes a class better than several Gaussians do."
    )


def modality_charts(found: Sequence[Modality]) -> list[Chart]:
    """NLL(K) - NLL(1) of the runs with the interval over classes, and level lines of one t."""
    series = []
    across = [float(k) for k in COMPONENTS]
    level = [1 + 7 * i / 99 for i in range(100)]  # that many carry no marks
    title, names = shared_start([m.title for m in found])
    for look, (m, name) in enumerate(zip(found, names, strict=True)):
        gains = [m.gain(k) for k in COMPONENTS]
        middle, high, low = ([-gain[part] for gain in gains] for part in range(3))
        series.append(Series(name, across, middle, low, high, look))
        one = float(m.students.mean(0).min() - m.gaussians[:, 0].mean())
        dashed = look + len(style.COLOURS)  # the same colour
        series.append(Series(f"{name}: one Student t", level, [one] * 100, (), (), dashed))
    return [
        sweep_chart(title, "Gaussians a class (K)", "held-out NLL against K = 1 (nats)", series)
    ]


def shared_start(names: Sequence[str]) -> tuple[str, list[str]]:
    """The parts (between commas) with which all names begin, and what is left of each.

    >>> title, names = shared_start(["otc, mnist, preserve=0", "otc, mnist, preserve=1"])
    >>> title
    'otc, mnist'
    >>> names
    ['preserve=0', 'preserve=1']
    """
    parts = [name.split(", ") for name in names]
    count = 0
    while all(len(p) > count + 1 and p[count] == parts[0][count] for p in parts):
        count += 1
    return ", ".join(parts[0][:count]), [", ".join(p[count:]) for p in parts]
