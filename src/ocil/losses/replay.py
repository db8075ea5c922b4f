"""Distillation from logits that were stored with an image (DER: Buzzega et al., NeurIPS 2020)."""

from __future__ import annotations

import torch


def stored_logits(
    logits: torch.Tensor, stored: torch.Tensor, known: torch.Tensor, outputs: int = 0
) -> torch.Tensor:
    """Mean squared difference over the columns that existed when an image was stored.

    L = sum_i sum_{c < known_i} (o_ic - o'_ic)^2 / sum_i known_i for logits o (n, C), those stored
    o' (n, K) with K <= C, of which the first known (n,) count -> 0-d. With all columns known this
    is the mean over images and columns of the reference code.

    With `outputs` all columns of o count, those that came later against 0, and the mean is over so
    many columns or over all there are: a head of that size from the start whose logits of classes
    not learned yet are 0.
    """
    width = stored.shape[1]
    there = torch.arange(width, device=stored.device) < known[:, None]  # (n, K)
    if outputs:
        target = torch.zeros_like(logits)
        target[:, :width] = stored.masked_fill(~there, 0.0)
        return (logits - target).square().sum() / (len(logits) * max(outputs, logits.shape[1]))
    gap = (logits[:, :width] - stored).masked_fill(~there, 0.0)
    return gap.square().sum() / known.sum()
