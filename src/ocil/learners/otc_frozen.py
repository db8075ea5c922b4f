"""OTC on features that never change: a net with nothing to train, or vectors as they are.

The mixtures learn the batch alone: there is no head, no gradient step and nothing to replay. The
memory is filled all the same, for the read-out by its means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ocil.learners import otc_readouts
from ocil.learners.learner import Report
from ocil.learners.model import Headless, Model
from ocil.learners.otc import Otc
from ocil.learners.otc_settings import OtcSettings
from ocil.learners.readouts import Readout
from ocil.stream import Batch


class FrozenOtc(Otc):
    own_readout = "mahalanobis-1"  # few points a class: their mean says more than K centroids

    def __init__(self, settings: OtcSettings, *rest: Any) -> None:
        if settings.start.points == "auto":
            start = replace(settings.start, points=settings.window.queue)
            settings = replace(settings, start=start)
        super().__init__(settings, *rest)

    @property
    def trained(self) -> bool:
        return True  # there is nothing to train: the mixtures have what they need

    def build_model(self, net: torch.nn.Module) -> Model:
        return Headless(net, self.generators["init"])

    @torch.no_grad()
    def step(self, batch: Batch) -> Report:
        self.backbone_images += len(batch.y)
        z = self.encode_latent(batch.x)
        self.inside.arrive(z, batch.y.to(self.device))
        self.update_mixtures(z, batch.y)
        self.fill_memory(batch, z)
        return {}

    def update_mixtures(self, z: Tensor, y: Tensor) -> None:
        self.mixtures.update(z, y, self.generators["method"])

    def readouts_in(self, space: str, model: Model) -> dict[str, Readout]:
        return {"mean": self.mean_readout(space)}

    def readouts(self) -> dict[str, Readout]:
        return {k: v for k, v in super().readouts().items() if k not in otc_readouts.TRAINED}
