"""One Student t distribution in d dimensions: one mode, tails as heavy as the data ask for.

    p(z) = G((v + d) / 2) / G(v / 2) (v pi)^(-d/2) |S|^(-1/2) (1 + q / v)^(-(v + d) / 2)
    q = (z - m)' S^-1 (z - m)

Fitted by EM for a fixed v (Liu and Rubin, Statistica Sinica 1995): points far out get the weight
w = (v + d) / (v + q), then m = sum w z / sum w and S = sum w (z - m)(z - m)' / n.
"""

from __future__ import annotations

from math import lgamma, log, pi
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FREEDOM = (0.5, 1.0, 2.0, 4.0, 16.0, 64.0)  # the last is close to a Gaussian
ROUNDS = 60

Points = NDArray[np.float64]  # (n, d)


class Student(NamedTuple):
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


def fit(points: Points, floor: float, slanted: bool) -> Student:
    """The one of `FREEDOM` under which the points (n, d) are likeliest.

    `floor` is added to variances; S is diagonal unless `slanted`.
    """
    return min((_fit(points, v, floor, slanted) for v in FREEDOM), key=lambda t: t.nll(points))


def _fit(points: Points, freedom: float, floor: float, slanted: bool) -> Student:
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
