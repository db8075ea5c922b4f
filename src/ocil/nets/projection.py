"""A projection head: what contrastive methods train on top of the features and drop to predict."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Projection(nn.Module):
    """features -> hidden -> ReLU -> out, then unit length; hidden = 0 is one linear layer.

    The initial weights depend on the generator only, as those of `nets.build` do.

    >>> project = Projection(400, 400, 128, torch.Generator().manual_seed(0))
    >>> project(torch.ones(3, 400)).shape
    torch.Size([3, 128])
    """

    def __init__(self, features: int, hidden: int, out: int, generator: torch.Generator) -> None:
        super().__init__()
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            last = nn.Linear(hidden or features, out)
            first = [nn.Linear(features, hidden), nn.ReLU()] if hidden else []
            self.layers = nn.Sequential(*first, last)

    def forward(self, features: Tensor) -> Tensor:
        """(n, features) -> (n, out) of unit length."""
        return F.normalize(self.layers(features), dim=1)
