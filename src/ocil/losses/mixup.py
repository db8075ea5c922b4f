"""Cross-entropy of images that were mixed from two."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def mixed_cross_entropy(
    logits: torch.Tensor, first: torch.Tensor, second: torch.Tensor, share: torch.Tensor
) -> torch.Tensor:
    """mean_i (1 - l_i) CE(logits_i, a_i) + l_i CE(logits_i, b_i) (Zhang et al. 2018).

    logits (n, C), labels a = first (n,) and b = second (n,), l = share (n,) of the second -> 0-d.
    """
    own = F.cross_entropy(logits, first, reduction="none")
    other = F.cross_entropy(logits, second, reduction="none")
    return torch.lerp(own, other, share).mean()
