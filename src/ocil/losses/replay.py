"""Distillation from logits that were stored with an image (DER: Buzzega et al., NeurIPS 2020)."""

from __future__ import annotations

import torch


def stored_logits(logits: torch.Tensor, stored: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
    """Mean squared difference over the columns that existed when an image was stored.

    L = sum_i sum_{c < known_i} (o_ic - o'_ic)^2 / sum_i known_i for logits o (n, C), those stored
    o' (n, K) with K <= C, of which the first known (n,) count -> 0-d. With all columns known this
    is the mean over images and columns of the reference code.
    """
    width = stored.shape[1]
    there = torch.arange(width, device=stored.device) < known[:, None]  # (n, K)
    gap = (logits[:, :width] - stored).masked_fill(~there, 0.0)
    return gap.square().sum() / known.sum()
