"""Bias correction of the newest classes' logits (BiC: Wu et al., CVPR 2019)."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def bias_corrected(logits: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """b(o) = alpha_c o_c + beta_c: logits (L, n, C), bias (2, L, C) = [alpha, beta] -> (L, n, C).

    L classifiers, each with one pair for all classes of a task, repeated here for each class.
    """
    return logits * bias[0, :, None] + bias[1, :, None]


def fit_bias(
    logits: torch.Tensor,
    y: torch.Tensor,
    bias: torch.Tensor,
    old: int,
    *,
    steps: int = 200,
    lr: float = 0.1,
    momentum: float = 0.9,
    decay: float = 0.1,
) -> torch.Tensor:
    """The pair (alpha, beta) of the classes from number `old` on; those before keep theirs.

    Minimises, for each classifier on its own, by gradient descent over all n images from (1, 0),

        mean_i CE([b(o_old), alpha o_new + beta]_i, y_i) + decay beta^2 / 2.

    With r = softmax - one-hot on the new columns the gradients are mean_i sum_c r_ic o_ic and
    mean_i sum_c r_ic + decay beta. Of all iterates the one of least loss is returned: where the
    logits are so large that the descent overshoots, it can then do no harm.

    logits (L, n, C), y (n,), bias (2, L, C) -> bias (2, L, C). Reference: BiC, section 4.2.
    """
    n, classes = len(y), logits.shape[2]
    fixed, fresh = bias_corrected(logits, bias)[..., :old], logits[..., old:]
    target = F.one_hot(y, classes).to(logits.dtype)  # (n, C)
    start = bias.new_tensor([1.0, 0.0])[:, None].repeat(1, len(logits))  # (2, L)
    pair, velocity, best = start, torch.zeros_like(start), start
    least = torch.full_like(start[0], torch.inf)  # (L,)
    for _ in range(steps + 1):
        alpha, beta = pair[:, :, None, None]
        log_p = torch.cat([fixed, alpha * fresh + beta], 2).log_softmax(2)
        loss = -(log_p * target).sum((1, 2)) / n + decay * pair[1].square() / 2
        best = torch.where(loss < least, pair, best)
        least = torch.minimum(loss, least)
        r = log_p[..., old:].exp() - target[:, old:]
        slope = torch.stack([(r * fresh).sum((1, 2)), r.sum((1, 2))]) / n
        slope[1] += decay * pair[1]
        velocity = momentum * velocity + slope
        pair = pair - lr * velocity
    fitted = best[:, :, None].expand(-1, -1, classes - old)
    return torch.cat([bias[..., :old], fitted], 2)


def most_confident(logits: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of the classifier that is surest of its answer, image by image.

    i* = argmax_i max_c softmax(o^i)_c; logits (L, n, C) -> (n, C). Reference: auxiliary classifiers
    (Szatkowski et al., ICML 2025), the most confident of all.
    """
    log_p = logits.log_softmax(2)
    surest = log_p.amax(2).argmax(0)  # (n,)
    return log_p[surest, torch.arange(logits.shape[1], device=logits.device)]
