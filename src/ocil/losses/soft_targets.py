"""Distillation from a teacher's logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def distillation(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), mean over points; (n, C) both."""
    log_p = F.log_softmax(student / temperature, 1)
    log_q = F.log_softmax(teacher.detach() / temperature, 1)
    return temperature**2 * F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)
