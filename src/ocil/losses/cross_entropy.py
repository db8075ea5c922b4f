"""Cross-entropy among some of the classes, and distillation from a teacher's logits."""

import torch
import torch.nn.functional as F
from torch import Tensor


def present(y: Tensor, classes: int) -> Tensor:
    """Which of 0..classes-1 occur in y (n,): (classes,) bool.

    >>> present(torch.tensor([2, 0, 2]), 4).tolist()
    [True, False, True, False]
    """
    return torch.zeros(classes, dtype=torch.bool, device=y.device).index_fill_(0, y, True)


def restricted_cross_entropy(logits: Tensor, y: Tensor, among: Tensor) -> Tensor:
    """-mean_i log( exp(o_{i,y_i}) / sum_{c in A} exp(o_ic) ): the softmax over the classes A only.

    The logits of all other classes take no part and get no gradient.
    logits (n, C), y (n,) in A, among (C,) bool -> 0-d.
    """
    return F.cross_entropy(logits.masked_fill(~among, -torch.inf), y)


def asymmetric_cross_entropy(logits: Tensor, y: Tensor, old: int) -> Tensor:
    """Mean over all images; those after the `old` first, the stream's, among their own classes."""
    among = present(y[old:], logits.shape[1])
    fresh = restricted_cross_entropy(logits[old:], y[old:], among)
    replayed = F.cross_entropy(logits[:old], y[:old]) if old else fresh
    return torch.lerp(fresh, replayed, old / len(y))


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), mean over points; (n, C) both."""
    log_p = F.log_softmax(student / temperature, 1)
    log_q = F.log_softmax(teacher.detach() / temperature, 1)
    return temperature**2 * F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)
