"""What OCM and OnPro share: InfoNCE over all turns of an image, for features that are holistic.

Rot(x)   16 turns of an image (`ocil.augment.views`), each with its label a class of its own
z, F     the linear projection g(h(x)) and the feature h(x), both of unit length
S        c (Z Z^T + Z F[:, s : s + p]^T) for a start s drawn anew for every matrix
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocil.augment import views
from ocil.learners.model import Model
from ocil.learners.replay import as_float
from ocil.losses import holistic_scores
from ocil.nets.projection import Projection
from ocil.settings import Settings, setting


@dataclass(frozen=True)
class HolisticSettings(Settings):
    tau: float = setting(0.07, above=0)
    """Temperature of InfoNCE."""
    projection: int = setting(128, low=1)
    """Dimensions of the projection (p), at most those of the features."""
    similarity_first: float = 1.0
    """Factor of the similarities (c) in the first task."""
    similarity: float = 1.0
    """Factor of the similarities (c) in later tasks."""
    replay_per_class: int = setting(7, low=1)
    """After the first task replay at most this many images for each class seen."""


class HolisticModel(Model):
    """Net, head and a linear projection."""

    def __init__(self, net: nn.Module, size: int, generator: torch.Generator) -> None:
        super().__init__(net, generator)
        features = self.head.features
        self.projection_size = min(size, features)
        self.projection = Projection(features, 0, self.projection_size, generator)

    def embed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Images -> z (n, p), F (n, d), both of unit length."""
        h = self.net(x)
        return self.projection(h), F.normalize(h, dim=1)


def turned_pairs(x: Tensor, augmented: Callable[[Tensor], Tensor]) -> Tensor:
    """Every turn of raw images x (n, ...), as it is and augmented -> (16, 2, n, ...) floats."""
    turned = as_float(views.turns(x))
    second = augmented(turned.flatten(0, 1)).reshape_as(turned)
    return torch.stack([turned, second], 1)


def similarities(
    z: Tensor, f: Tensor, factor: float, tau: float, generator: torch.Generator
) -> Tensor:
    """S / tau (n, n) of embedded images, with a random slice of the features."""
    start = int(torch.randint(f.shape[1] - z.shape[1] + 1, (), generator=generator))
    return holistic_scores(z, f, start, factor / tau)
