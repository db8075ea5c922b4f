"""kNN: the nearest neighbours in the memory (Fix and Hodges 1951), in the space of a fixed encoder.

    score_c(x) = sum over the k nearest of the memory, those of class c, of 1 / |h(x) - h(x_i)|

The memory is a reservoir sample of the stream; nothing else is kept. The simplest use that a method
can make of a memory, and so what replay has to beat on the same features.

| symbol | here                | meaning                              |
|--------|---------------------|--------------------------------------|
| h      | model.net           | the encoder, fixed after 300 samples |
| k      | settings.neighbours | neighbours that vote                 |

Differs from the textbook in that votes are weighed by nearness. Cost: no gradient; the memory is
encoded once after new samples, when a prediction is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ocil.learners.fixed import FixedLearner, FixedSettings, plain
from ocil.learners.readouts import Centroids, Readout, mean_centroids
from ocil.settings import setting


@dataclass(frozen=True)
class KnnSettings(FixedSettings):
    memory: int | None = setting(500, low=1, costs=False)
    """Images the memory holds, which vote."""
    neighbours: int = setting(5, low=1, search=(1, 3, 5, 9, 15))
    """Images of the memory that vote, the nearest ones."""


class Knn(FixedLearner[KnnSettings]):
    method = "knn"
    title = "Nearest neighbours in the memory"
    needs_memory = True
    memory_policy = "reservoir"
    own_readout = "neighbours"
    settings_type = KnnSettings

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.readout = self.choose_readout()

    def restart(self) -> None:
        """There are no statistics."""

    def count(self, z: Tensor, y: Tensor) -> None:
        """There are no statistics."""

    def uncount(self, z: Tensor, y: Tensor) -> None:
        """There are no statistics."""

    def held(self) -> tuple[Tensor, Tensor]:
        """Features and classes of the memory, kept until the next `learn`."""
        if "z" not in self.cache:
            self.cache["z"], self.cache["y"] = self.held_features()
        return self.cache["z"], self.cache["y"]

    def readouts(self) -> dict[str, Readout]:
        def scores(x: Tensor) -> Tensor:
            z, y = self.held()
            near = torch.cdist(x, z).topk(min(self.settings.neighbours, len(y)), largest=False)
            votes = 1 / near.values.clamp(min=1e-6)
            return x.new_zeros(len(x), self.classes).scatter_add_(1, y[near.indices], votes)

        def novelty(x: Tensor) -> Tensor:
            return -scores(x).sum(1)  # all votes: how near the neighbours are

        return {"neighbours": plain(scores, self.means, needs_memory=True, novelty=novelty)}

    @torch.inference_mode()
    def means(self) -> Centroids:
        return mean_centroids(*self.held(), self.classes)
