"""How far to draw a covariance to a round one: a first guess, and the leave-one-out loss.

Sigma = (1 - rho) S + rho tr(S)/d I
"""

from __future__ import annotations

import torch
from torch import Tensor

GRID = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 0.9)  # of rho
TEMPERATURES = (8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.12, 0.06, 0.03, 0.015)
START = 0.12  # a temperature to begin with


def oas(s: Tensor, n: int) -> float:
    """Shrinkage of a covariance S (d, d) of n samples by Chen et al. 2010, eq. (23).

    rho = ((1 - 2/d) tr(S^2) + tr(S)^2) / ((n + 1 - 2/d) (tr(S^2) - tr(S)^2 / d)), at most 1.
    """
    d, trace, squares = len(s), float(s.trace()), float(s.square().sum())
    spread = (n + 1 - 2 / d) * (squares - trace**2 / d)
    rho = ((1 - 2 / d) * squares + trace**2) / spread if spread > 0 else 1.0
    return min(max(rho, GRID[0]), 1.0)


def choose(losses: Tensor, m: int) -> tuple[float, float]:
    """rho and temperature by the losses (R, T) of m samples.

    The largest rho whose loss is all but the least: where nothing errs, all are alike. Of the
    temperatures the best, drawn to a tenth while the samples are few.
    """
    best = losses.amin(1)
    r = int((best <= 1.01 * best.min() + 1e-3).nonzero().max())
    away = torch.tensor(TEMPERATURES).to(losses).div(START).log2().square() * (4 / m)
    return GRID[r], TEMPERATURES[int((losses[r] + away[: losses.shape[1]]).argmin())]


def spectrum(s: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (d,), none below 0, and vectors of S (d, d); in float32 where that saves time.

    The grid's steps are a factor of two and more, so the choice does not need the last digits.
    """
    values, basis = torch.linalg.eigh(s if len(s) <= 1024 else s.float())
    return values.clamp_(min=0), basis


def left_out_losses(s: Tensor, means: Tensor, counts: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """Log-loss (R, T) of samples under the discriminant of all others, for each rho of the grid.

    S (d, d), means (C, d) and counts (C,) are those of all samples, z (m, d) and y (m,) some of
    them. Taking x of class y (k = n_y samples, v = x - mu_y) away changes

        mu_y by -v / (k - 1),   n S by -k/(k-1) v v',   n tr(S) by -k/(k-1) |v|^2,

    so in the basis of S the matrix is diagonal but for one rank, which Sherman and Morrison invert.
    Each also at every temperature: what scores lack in calibration is no fault of rho.
    """
    values, basis = spectrum(s)
    x, m = (rows.to(basis) @ basis for rows in (z, means))  # (m, d), (C, d)
    values, x, m = values.double(), x.double(), m.double()
    hot = torch.tensor(TEMPERATURES, dtype=x.dtype, device=x.device)[:, None, None]
    found = []
    for rho in GRID:
        scores = _left_out_scores(values, x, m, counts, y, rho)
        scores = scores.masked_fill(counts == 0, -torch.inf)
        tempered = (scores - scores.max(1, keepdim=True).values) * hot  # (T, m, C)
        own = tempered.log_softmax(2).gather(2, y.expand(len(hot), -1)[..., None])
        found.append(-own.mean((1, 2)))
    return torch.stack(found)


def _left_out_scores(
    values: Tensor, x: Tensor, m: Tensor, counts: Tensor, y: Tensor, rho: float
) -> Tensor:
    """Scores (m, C) of each sample by the discriminant without it; all in the basis U."""
    n, dim = int(counts.sum()), len(values)
    k = counts[y].to(x)[:, None]  # (m, 1)
    v = x - m[y]
    a, e = k / (k - 1), 1 / (k - 1)
    level = n * values.mean() - a * v.square().sum(1, keepdim=True) / dim  # (m, 1)
    inverse = ((1 - rho) * n * values + rho * level).reciprocal()  # (m, d)
    p = v * inverse
    vx, vv = (p * x).sum(1, keepdim=True), (p * v).sum(1, keepdim=True)  # (m, 1)
    xm, vm, mm = (x * inverse) @ m.T, p @ m.T, inverse @ m.square().T  # (m, C)
    own = torch.zeros_like(xm).scatter_(1, y[:, None], 1.0)
    mm = mm + own * (e * e * vv - 2 * e * vm)
    xm, vm = xm - own * e * vx, vm - own * e * vv
    b = (1 - rho) * a
    gain = b / (1 - b * vv)
    return (n - 1) * (xm + gain * vx * vm - (mm + gain * vm.square()) / 2)
