"""How foreign a sample is to all classes, from their exact statistics.

    novelty(x) = near - far + max(0, near - 2 d),
    near = min_c |x - mu_c|^2_Sigma,   far = |x - mu|^2_T

near - far is the relative Mahalanobis distance (Ren et al. 2021, arXiv 2106.09022): far from every
class, measured by how far all of the stream lies out there. mu and T are mean and covariance of all
samples, shrunk as Sigma is. It looks along the directions in which classes differ, so with few
classes it overlooks what is strange in all others: hence the last term, for samples at more than
twice the distance that those of a class have on average. With one class near alone counts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.moments.discriminant import ClassMoments


def _white(factor: Tensor, rows: Tensor) -> Tensor:
    """L^-1 x for rows x (n, d)."""
    return torch.linalg.solve_triangular(factor, rows.T, upper=False).T


def _spaces(moments: ClassMoments, spaces: int = 2) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Factor, means (C, d) less the shift and counts (C,): of the classes, and of all as one."""
    counts, means = moments.counts, moments.means - moments.shift.double()
    found = [(moments.factor(), means[counts > 0], counts[counts > 0])]
    if spaces > 1 and len(found[0][1]) > 1:
        factor, mean = moments.background()
        found.append((factor, mean[None], counts.sum()[None]))
    return found


def _relative(distances: list[Tensor], dim: int) -> Tensor:
    """(n, C) and perhaps (n, 1) -> (n,)."""
    near, *far = (own.amin(1) for own in distances)
    return (near - far[0] + (near - 2 * dim).clamp(min=0) if far else near).float()


@torch.inference_mode()
def novelty(moments: ClassMoments, z: Tensor) -> Tensor:
    """Of features z (n, d) -> (n,)."""
    x, found = (z - moments.shift).double(), []
    for factor, means, _ in _spaces(moments):
        x_white, m_white = _white(factor, x), _white(factor, means)
        squares = x_white.square().sum(1, keepdim=True) + m_white.square().sum(1)
        found.append(squares - 2 * x_white @ m_white.T)
    return _relative(found, moments.dim)


@torch.inference_mode()
def left_out(moments: ClassMoments, z: Tensor, y: Tensor) -> Tensor:
    """The same for samples z (m, d) of classes y (m,) that are counted, as if each were not.

    Those alone in their class are left out.
    """
    usable = moments.counts[y] > 1
    return _relative(_left_out_distances(moments, z[usable], y[usable]), moments.dim)


@torch.inference_mode()
def left_out_scores(moments: ClassMoments, z: Tensor, y: Tensor) -> Tensor:
    """Scores (m, C) of the discriminant for counted samples z (m, d), y (m,), as if each were not.

    Up to a constant a sample.
    """
    counts = moments.counts
    found = moments.scores(z).double()
    usable = counts[y] > 1
    inner = found.new_full((int(usable.sum()), moments.classes), -torch.inf)
    inner[:, counts > 0] = -_left_out_distances(moments, z[usable], y[usable], 1)[0] / 2
    found[usable] = inner
    return found


def _left_out_distances(
    moments: ClassMoments, z: Tensor, y: Tensor, spaces: int = 2
) -> list[Tensor]:
    """Squared distances (m, C) to the classes that have samples, and (m, 1) to all as one.

    Without x of a class of k samples, v = x - mu_y, the mean moves by -v / (k - 1) and

        (n - 1) Sigma' = n Sigma - b v v',   b = (1 - rho) k / (k - 1)

    but for the trace in the ridge, which one sample hardly changes, and for samples that have not
    entered Sigma yet.
    """
    counts = moments.counts
    x = (z - moments.shift).double()
    place = (counts > 0).long().cumsum(0) - 1  # of a class among those that have samples
    n = float(counts.sum())
    found = []
    for own, (factor, means, sizes) in zip(
        (place[y], torch.zeros_like(y))[:spaces], _spaces(moments, spaces), strict=False
    ):
        u, m, rho = _white(factor, x), _white(factor, means), moments.rho
        k, v = sizes[own].double()[:, None], u - m[own]
        b = (1 - rho) * k / (k - 1) / n
        vv, vu = v.square().sum(1, keepdim=True), (v * u).sum(1, keepdim=True)
        apart = torch.cdist(u, m).square()  # (m, C): |x - mu_c|^2
        along = vu - v @ m.T  # (m, C): (x - mu_c).v
        mine = torch.zeros_like(apart).scatter_(1, own[:, None], 1.0).bool()
        apart = torch.where(mine, vv * (k / (k - 1)).square(), apart)
        along = torch.where(mine, vv * k / (k - 1), along)
        found.append((apart + b * along.square() / (1 - b * vv).clamp(min=1e-6)) * (n - 1) / n)
    return found
