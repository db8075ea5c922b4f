"""Losses between the exits of one network."""

from __future__ import annotations

import torch
import torch.nn.functional as F


def reverse_distillation(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Distance of unit features from those of a shallower exit (MOSE, Yan et al. 2024).

    | s / |s| - t / |t| |_F, the Frobenius norm of the whole (n, d) difference, which grows with
    sqrt(n), as in the reference code, not a mean over points. The teacher t gets no gradient.

    student (n, d), teacher (n, d) -> 0-d.

    >>> reverse_distillation(torch.tensor([[2.0, 0.0]] * 4), torch.tensor([[0.0, 3.0]] * 4)) ** 2
    tensor(8.0000)
    """
    difference = F.normalize(student, dim=1) - F.normalize(teacher.detach(), dim=1)
    return torch.linalg.vector_norm(difference)
