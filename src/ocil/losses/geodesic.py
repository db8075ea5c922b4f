"""Distillation along the geodesic between two feature subspaces (GeoDL, Simon et al. 2021).

A batch's old features span a subspace P0, its new ones P1. The shortest path between them on the
Grassmann manifold passes through the subspaces Pi(nu), 0 <= nu <= 1, and the mean of the
projections on all of them has a closed form, the geodesic flow kernel (Gong et al. 2012)

    G = int_0^1 Pi(nu) Pi(nu)^T dnu.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

FORMS = ("cosine", "difference")


class FlowKernel(NamedTuple):
    """G = [A B] [[l1, l2], [l2, l3]] [A B]^T, with A, B (d, k) and diagonal blocks l (k,)."""

    a: torch.Tensor
    b: torch.Tensor
    l1: torch.Tensor
    l2: torch.Tensor
    l3: torch.Tensor

    def product(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """x_i^T G y_i for the rows of x (n, d) and y (n, d) -> (n,); G itself is never formed."""
        (xa, xb), (ya, yb) = ((v @ self.a, v @ self.b) for v in (x, y))  # (n, k) each
        return (xa * (self.l1 * ya + self.l2 * yb) + xb * (self.l2 * ya + self.l3 * yb)).sum(1)


def subspace(z: torch.Tensor, k: int) -> torch.Tensor:
    """Orthonormal basis (d, k) of the k main directions of the rows of z (n, d), not centred."""
    q, r = torch.linalg.qr(z.T)  # first, since n < d as a rule: half the time of an SVD alone
    return q @ torch.linalg.svd(r, full_matrices=False).U[:, :k]


def flow_kernel(p0: torch.Tensor, p1: torch.Tensor) -> FlowKernel:
    """G of the geodesic between two subspaces with orthonormal bases p0 and p1 (d, k).

    P0^T P1 = U cos(Theta) V^T gives the principal angles; A = P0 U, B = (A cos(Theta) - P1 V) /
    sin(Theta), and Pi(nu) = A cos(nu Theta) - B sin(nu Theta) runs from A to P1 V. Integrated,

        l1, l3 = (1 +- sin(2 th) / (2 th)) / 2   and   l2 = -sin(th)^2 / (2 th).
    """
    u, cos, vh = torch.linalg.svd(p0.T @ p1)
    a = p0 @ u
    residual = a * cos - p1 @ vh.T  # (d, k), columns of length sin(Theta)
    sin = residual.norm(dim=0)
    angle = torch.atan2(sin, cos)  # exact for small angles, where arccos is not
    # Where the angle vanishes so do l2 and l3, and the direction of the column does not matter.
    b = residual / sin.clamp(min=torch.finfo(sin.dtype).tiny)
    full, half = torch.sinc(2 * angle / torch.pi), torch.sinc(angle / torch.pi)  # sin(v) / v
    return FlowKernel(a, b, (1 + full) / 2, -angle.sin() * half / 2, (1 - full) / 2)


def geodesic_distillation(
    z: torch.Tensor, past: torch.Tensor, k: int, form: str = "cosine"
) -> torch.Tensor:
    """Old and new features agree on all subspaces between those that they span.

    With rows z_i and their past p_i of unit length and G a constant of the batch,

        cosine      L = mean_i 1 - p_i^T G z_i / sqrt(p_i^T G p_i  z_i^T G z_i)   (as in the paper)
        difference  L = mean_i (p_i - z_i)^T G (p_i - z_i)              (as in the authors' code)

    k is lowered to n - 2 and to d; a batch of fewer than three takes G = 1, all of the space.

    z (n, d), past (n, d), neither of unit length yet -> 0-d.
    """
    z, past = F.normalize(z, dim=1), F.normalize(past.detach(), dim=1)
    k = min(k, len(z) - 2, z.shape[1])
    product = flow_kernel(subspace(past, k), subspace(z.detach(), k)).product if k > 0 else _dot
    if form == "difference":
        return product(past - z, past - z).mean()
    lengths = product(past, past) * product(z, z)
    return (1 - product(past, z) / lengths.clamp(min=1e-16).sqrt()).mean()


def _dot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y).sum(1)
