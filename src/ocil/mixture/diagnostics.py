"""A look inside the mixtures: numbers for the record, pure functions of their parameters."""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.mixture.reader import MixtureReader
from ocil.mixture.transport import mixture_wasserstein


def spread(mu: Tensor, var: Tensor, active: Tensor) -> Tensor:
    """Mean distance between the active centroids of a class in units of its rms |sigma| (C,).

    nan for a class with fewer than two components in use.
    """
    pair = active.unsqueeze(-1) & active.unsqueeze(-2)
    pair = pair & ~torch.eye(active.shape[-1], dtype=torch.bool, device=pair.device)
    total = (torch.cdist(mu, mu) * pair).sum((-2, -1)) / pair.sum((-2, -1))
    norm = (var.sum(-1) * active).sum(-1) / active.sum(-1)
    return total / norm.sqrt()


def at_floor(var: Tensor, active: Tensor, least: Tensor) -> Tensor:
    """Share of the variances of a class (C,) at the floor `least` (C,) last put under them."""
    weight = active.unsqueeze(-1).expand_as(var).to(var.dtype)
    low = (var <= 1.0001 * least.view(-1, 1, 1)).to(var.dtype) * weight
    return low.sum((-2, -1)) / weight.sum((-2, -1))


def drift(before: tuple[Tensor, Tensor, Tensor], after: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Mixture-Wasserstein distance (C,) between two states (mu, var, log pi) of the same classes.

    `after` may know more classes; those are left out. nan where a class had no mixture yet.
    """
    size = len(before[0])
    later = tuple(part[:size] for part in after)
    known = (before[2] > -torch.inf).any(-1) & (later[2] > -torch.inf).any(-1)
    result = torch.full((size,), torch.nan, dtype=before[0].dtype, device=before[0].device)
    if bool(known.any()):
        first, second = ([part[known] for part in state] for state in (before, later))
        result[known] = mixture_wasserstein(*first, *second)
    return result


def describe(mixtures: MixtureReader) -> dict[str, list[float | None]]:
    """Per class: spread, quartiles of sigma, share at the floor, smallest and largest weight."""
    active, var = mixtures.active, mixtures.store["var"]
    sigma = torch.where(active.unsqueeze(-1), var, torch.nan).sqrt().flatten(1)
    pi = mixtures.log_pi.exp()
    least = torch.where(active, pi, torch.inf).amin(-1)
    numbers = {
        "spread": spread(mixtures.mu, var, active),
        "at_floor": at_floor(var, active, mixtures.store["least"]),
        "weight_min": least,
        "weight_max": pi.amax(-1),
    }
    for name, level in (("sigma_25", 0.25), ("sigma_50", 0.5), ("sigma_75", 0.75)):
        numbers[name] = torch.nanquantile(sigma, level, dim=-1)
    return {
        name: [value if abs(value) < float("inf") else None for value in values.tolist()]
        for name, values in numbers.items()
    }
