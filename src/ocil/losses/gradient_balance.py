"""How much gradient a class's logit has received from its own samples and from all others."""

from __future__ import annotations

import torch
import torch.nn.functional as F

EPSILON = 1e-8


def gradient_masses(logits: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What cross-entropy does to each logit in one batch: up by own samples, down by the others.

    With p = softmax(logits), the gradient of sum_i -log p_{i,y_i} by the logit o_ic is p_ic - 1 for
    c = y_i and p_ic otherwise, so that
    positive_c = sum_{i: y_i = c} (1 - p_ic),   negative_c = sum_{i: y_i != c} p_ic.

    logits (n, C), y (n,) -> two (C,), without gradient.
    """
    p = logits.detach().softmax(1)
    own = F.one_hot(y, p.shape[1]).to(p.dtype)
    return ((1 - p) * own).sum(0), (p * (1 - own)).sum(0)


def adaptive_weights(positive: torch.Tensor, negative: torch.Tensor) -> torch.Tensor:
    """w = 2 / (1 + exp(1 - R)), R = positive / negative: 1 in balance, from 0.54 up to 2 (GSA).

    positive, negative (C,), at least 0, as `gradient_masses` accumulates them -> (C,). A class
    that has received neither counts as balanced.

    >>> adaptive_weights(torch.tensor([0.0, 1.0, 9.0]), torch.tensor([0.0, 1.0, 0.0])).tolist()
    [1.0, 1.0, 2.0]
    """
    ratio = (positive + EPSILON) / (negative + EPSILON)
    return 2 * torch.sigmoid(ratio - 1)
