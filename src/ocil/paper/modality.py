"""Do classes stay multi-modal? Held-out likelihood of their features under K Gaussians.

For the test features of a class, cut into halves A and B at random,

    NLL(K) = -(1/|B|) sum_{z in B} log sum_k pi_k N(z; mu_k, diag(sigma_k^2))

where EM fits the mixture on A (scikit-learn's GaussianMixture). Each half is fitted in turn, for
several cuts; the mean over classes is what is told. More components than a class needs fit A
better and B worse, so NLL falls with K only while there is something to find.

What is found need not be modes: several Gaussians also follow a class with one mode and heavy
tails, or a slanted one. So the likelihood under one Student t distribution is told beside them,
with a diagonal and with a full scale matrix (`Student`). It has one mode; what K Gaussians have
over it is what tails and slant do not explain.

Features have hundreds of dimensions and a class a few hundred points: the `DIMENSIONS` directions
of largest variance over all test features of the run are kept, and each is divided by its
deviation within classes. That shifts every NLL of a run by the same constant, and makes the floor
of the variances (`FLOOR`) mean the same in every run.
"""

import warnings
from collections.abc import Iterator, Sequence
from math import lgamma, log, pi
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ocil.errors import OcilError
from ocil.paper.claims import EVERYWHERE, Comparison, fits
from ocil.paper.evidence import Finding
from ocil.report import style
from ocil.report.charts import Chart, Series
from ocil.report.latent import Kept, find_latents, principal, titles
from ocil.report.panels import sweep_chart
from ocil.report.render import Cell, Strong, Table
from ocil.report.runs import Run
from ocil.run.latentfile import Latents
from ocil.run.metrics import paired_difference

COMPONENTS = tuple(range(1, 9))
DIMENSIONS = 16
CUTS = 5
FLOOR = 0.01  # added to variances, which are one on average
STARTS = 3  # of EM, of which the likeliest counts
MIN_FEATURES = 40  # points: a half must feed eight components

FREEDOM = (0.5, 1.0, 2.0, 4.0, 16.0, 64.0)  # the last is close to a Gaussian
ROUNDS = 60

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
        return paired_difference(self.gaussians[:, 0].tolist(), self.gaussians[:, k - 1].tolist())

    def beyond_one_mode(self) -> tuple[float, float, float]:
        """NLL of the better Student t minus that of the best K: above 0, tails do not explain K."""
        mixture = self.gaussians[:, self.best - 1]
        return paired_difference(self.best_student.tolist(), mixture.tolist())

    @property
    def best_student(self) -> NDArray[np.float64]:
        """NLL of each class under the better of the two Student t."""
        return self.students[:, self.students.mean(0).argmin()]


def modalities(kept: Sequence[Kept], dims: int = DIMENSIONS) -> list[Modality]:
    """One for each run."""
    return [modality(k.latents, t, dims) for k, t in zip(kept, titles(kept), strict=True)]


def modality(latents: Latents, title: str, dims: int = DIMENSIONS) -> Modality:
    """Of the features of one run; classes with fewer than `MIN_FEATURES` points are left out."""
    points, kept = principal(latents.features, dims)
    classes = [points[latents.labels == c] for c in np.unique(latents.labels)]
    classes = [own for own in classes if len(own) >= MIN_FEATURES]
    if len(classes) < 2:
        raise OcilError(
            f"{title}: modality needs two classes with {MIN_FEATURES} or more test features each; "
            "use a data set with fewer classes."
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
        [fit_student(a, FLOOR, slanted).nll(b) for slanted in (False, True)]
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


class Student(NamedTuple):
    """One Student t distribution in d dimensions: one mode, tails as heavy as the data ask for.

    p(z) = G((v + d) / 2) / G(v / 2) (v pi)^(-d/2) |S|^(-1/2) (1 + q / v)^(-(v + d) / 2)
    q = (z - m)' S^-1 (z - m)
    """

    mean: NDArray[np.float64]  # (d,)
    scale: NDArray[np.float64]  # (d, d)
    freedom: float

    def distances(self, points: Points) -> NDArray[np.float64]:
        """q of each point, (n,)."""
        half = np.linalg.cholesky(self.scale)
        return (np.linalg.solve(half, (points - self.mean).T) ** 2).sum(0)

    def nll(self, points: Points) -> float:
        """-(1/n) sum log p(z)."""
        v, d = self.freedom, len(self.mean)
        q = self.distances(points)
        constant = lgamma((v + d) / 2) - lgamma(v / 2) - d / 2 * log(v * pi)
        volume = 0.5 * np.linalg.slogdet(self.scale)[1]
        return float(volume - constant + ((v + d) / 2 * np.log1p(q / v)).mean())


def fit_student(points: Points, floor: float, slanted: bool) -> Student:
    """The one of `FREEDOM` under which the points (n, d) are likeliest.

    `floor` is added to variances; S is diagonal unless `slanted`. EM for a fixed v (Liu and Rubin,
    Statistica Sinica 1995): points far out get the weight w = (v + d) / (v + q), then
    m = sum w z / sum w and S = sum w (z - m)(z - m)' / n.
    """
    fits = (_fit_student(points, v, floor, slanted) for v in FREEDOM)
    return min(fits, key=lambda t: t.nll(points))


def _fit_student(points: Points, freedom: float, floor: float, slanted: bool) -> Student:
    dims = points.shape[1]
    found = Student(np.median(points, axis=0), np.diag(points.var(0) + floor), freedom)
    for _ in range(ROUNDS):
        weight = (freedom + dims) / (freedom + found.distances(points))
        mean = weight @ points / weight.sum()
        rest = points - mean
        scale = (weight[:, None] * rest).T @ rest / len(points)
        scale = scale if slanted else np.diag(np.diag(scale))
        found = Student(mean, scale + floor * np.eye(dims), freedom)
    return found


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
    for look, m in enumerate(found):
        gains = [m.gain(k) for k in COMPONENTS]
        middle, high, low = ([-gain[part] for gain in gains] for part in range(3))
        series.append(Series(m.title, across, middle, low, high, look))
        one = float(m.students.mean(0).min() - m.gaussians[:, 0].mean())
        dashed = look + len(style.COLOURS)  # the same colour
        series.append(Series(f"{m.title}: one Student t", level, [one] * 100, (), (), dashed))
    return [sweep_chart("", "Gaussians a class (K)", "held-out NLL against K = 1 (nats)", series)]
