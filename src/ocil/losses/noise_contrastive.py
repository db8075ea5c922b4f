"""InfoNCE over turned views: every turn of a class is a class of its own (OCM, OnPro).

Scores are similarities over temperature, (T n, T m): T turns of n row points and of m column
points, the turns one after the other. Positives share turn and label, so that only T blocks of
(n, m) can hold any and the logarithms are taken there alone.
"""

from __future__ import annotations

import torch

EPS = 1e-8  # bounds a term by -log(EPS) = 18.4: what is hopelessly far is not pulled


def holistic_scores(z: torch.Tensor, f: torch.Tensor, start: int, scale: float) -> torch.Tensor:
    """scale (Z Z^T + Z F[:, s : s + p]^T), which is not symmetric (Guo et al. 2022).

    z (n, p) projections and f (n, d) features with p <= d, both of unit length; the slice of the
    features, which starts at `start` <= d - p, is not normalised again -> (n, n).
    """
    return (scale * z) @ (z + f[:, start : start + z.shape[1]]).T


def infonce(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """L = mean_i 1/|P_i| sum_{j in P_i} l_ij, the point itself among its positives (L_uni, L_pre).

    l_ij = -log(e_ij / (sum_k e_ik + eps) + eps) with e_ij = exp(scores_ij - max_k scores_ik).

    scores (T n, T n) of points to themselves or to other features of the same images, y (n,) the
    labels of n images -> 0-d.
    """
    return _mean_over_positives(_terms(scores, len(y), with_self=True), y)


def paired_infonce(scores: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """L = mean_i l_{i, pair(i)} + 2 mean_i 1/|P_i| sum_{j in P_i} l_ij (L_n).

    l_ij as in `infonce`, but e_ii = 0: the term of a point with itself is the constant -log eps. It
    counts in |P_i| and gives no gradient.

    scores (T 2n, T 2n): in each turn n images, then their second views; y (n,) -> 0-d.
    """
    n = len(y)
    terms = _terms(scores, 2 * n, with_self=False)  # (T, 2n, 2n)
    pair = terms.unflatten(2, (2, n)).unflatten(1, (2, n))  # (T, 2, n, 2, n)
    there, back = pair[:, 0, :, 1], pair[:, 1, :, 0]  # (T, n, n)
    paired = (there.diagonal(dim1=1, dim2=2).mean() + back.diagonal(dim1=1, dim2=2).mean()) / 2
    return paired + 2 * _mean_over_positives(terms, y.repeat(2))


def _terms(scores: torch.Tensor, n: int, *, with_self: bool) -> torch.Tensor:
    """l_ij within each turn: scores (T n, T n) -> (T, n, n)."""
    top = scores.detach().amax(1, keepdim=True)  # (T n, 1), the point itself included
    if not with_self:
        itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(itself, -torch.inf)
    total = (scores.logsumexp(1, keepdim=True) - top).exp()
    own = scores.unflatten(1, (-1, n)).unflatten(0, (-1, n))  # (T, n, T, n)
    own = own.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # (T, n, n)
    own = (own - top.unflatten(0, (-1, n))).exp()
    return -(own / (total.unflatten(0, (-1, n)) + EPS) + EPS).log()


def _mean_over_positives(terms: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Mean over the rows of the mean over their positives: terms (T, n, n), y (n,) -> 0-d."""
    positive = (y[:, None] == y).to(terms.dtype)
    return (terms * (positive / positive.sum(1, keepdim=True))).sum(2).mean()
