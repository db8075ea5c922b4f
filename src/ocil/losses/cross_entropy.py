"""Cross-entropy among some of the classes, and with a weight for every class."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def present(y: torch.Tensor, classes: int) -> torch.Tensor:
    """Which of 0..classes-1 occur in y (n,): (classes,) bool.

    >>> present(torch.tensor([2, 0, 2]), 4).tolist()
    [True, False, True, False]
    """
    return torch.zeros(classes, dtype=torch.bool, device=y.device).index_fill_(0, y, True)


def restricted_cross_entropy(
    logits: torch.Tensor, y: torch.Tensor, among: torch.Tensor
) -> torch.Tensor:
    """-mean_i log( exp(o_{i,y_i}) / sum_{c in A} exp(o_ic) ): the softmax over the classes A only.

    The logits of all other classes take no part and get no gradient.
    logits (n, C), y (n,) in A, among (C,) bool -> 0-d.
    """
    return F.cross_entropy(logits.masked_fill(~among, -torch.inf), y)


def asymmetric_cross_entropy(logits: torch.Tensor, y: torch.Tensor, old: int) -> torch.Tensor:
    """Mean over all images; those after the `old` first, the stream's, among their own classes."""
    among = present(y[old:], logits.shape[1])
    fresh = restricted_cross_entropy(logits[old:], y[old:], among)
    replayed = F.cross_entropy(logits[:old], y[:old]) if old else fresh
    return torch.lerp(fresh, replayed, old / len(y))


def weighted_cross_entropy(
    logits: torch.Tensor, y: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """1/n sum_i w_{y_i} CE(o_i, y_i), w a constant; divided by n, not by the sum of the weights.

    logits (n, C), y (n,), weights (C,) -> 0-d.
    """
    return (weights.detach()[y] * F.cross_entropy(logits, y, reduction="none")).mean()
