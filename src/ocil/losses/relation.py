"""Distillation of the relations inside a batch (Co2L, Cha et al. 2021)."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def relation_distillation(
    u: torch.Tensor, past: torch.Tensor, kappa: float, kappa_past: float
) -> torch.Tensor:
    """Every point finds the others as similar as it did under the past weights.

    p_i(kappa) = softmax over j != i of u_i.u_j / kappa, and the cross-entropy of both,
    L = -1/n sum_i sum_{j != i} p_i^past(kappa*)_j log p_i(kappa)_j; the past has no gradient.

    u (n, d) and past (n, d') of unit length, past from a model that is done learning -> 0-d.

    >>> u = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> round(float(relation_distillation(u, u, 1.0, 1.0)), 4)  # the entropy of the relations
    0.6192
    """
    target = _others(past.detach() @ past.detach().T / kappa_past).softmax(1)
    # log_softmax and not the log of a softmax: at kappa* = 0.01 the latter underflows to 0 * -inf
    return -(target * F.log_softmax(_others(u @ u.T / kappa), 1)).sum() / len(u)


def _others(similarity: torch.Tensor) -> torch.Tensor:
    """A square matrix without its diagonal: (n, n) -> (n, n - 1)."""
    n = len(similarity)
    return similarity.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
