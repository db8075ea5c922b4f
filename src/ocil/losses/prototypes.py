"""Online prototypes: class means of the batch at hand (OnPro, Wei et al. 2023)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ocil.losses.contrastive import contrast
from ocil.losses.preservation import first_of_each


def batch_prototypes(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Row i is the mean of all z_j with y_j = y_i: z (n, d), y (n,) -> (n, d).

    >>> batch_prototypes(torch.tensor([[1.0], [5.0], [3.0]]), torch.tensor([0, 1, 0])).tolist()
    [[2.0], [5.0], [2.0]]
    """
    same = (y[:, None] == y).to(z.dtype)
    return (same / same.sum(1, keepdim=True)) @ z


def prototype_equilibrium(
    first: torch.Tensor, second: torch.Tensor, y: torch.Tensor, tau: float
) -> torch.Tensor:
    """Prototypes of a class from two views together, those of different classes apart (OPE).

    With the class means of each view at unit length, 2 K of them for K classes in the batch, and
    a+ the mean of the class of a in the other view,

        L = -1/(2K) sum_a log( exp(a.a+ / tau) / sum_{b != a} exp(a.b / tau) ),

    which is 0 for K = 1. Every point gets a gradient. The shapes depend on n alone: a class with
    several points has as many equal rows, of which the first counts.

    first, second (n, d) projections of two views of the same images, y (n,) -> 0-d.
    """
    n = len(y)
    a = F.normalize(torch.cat([batch_prototypes(z, y) for z in (first, second)]), dim=1)
    counts = first_of_each(y).repeat(2)  # (2n,)
    itself = torch.eye(2 * n, dtype=torch.bool, device=a.device)
    each = contrast(a @ a.T / tau, itself.roll(n, 1), counts & ~itself)  # (2n,)
    return each.masked_fill(~counts, 0.0).sum() / counts.sum()
