"""How a learner answers: scores by its read-outs, which are functions of features.

Nothing here changes what was learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import Tensor

from ocil.learners.readouts import Centroids, Features, Readout


class Reader:
    own_readout: ClassVar[str] = "head"  # what counts by default, from averaged weights if kept
    readout: str  # the one that counts, chosen in the settings or by the method

    def features(self, x: Tensor) -> Features:
        """Features of raw images x (n, ...), in eval mode and without augmentation."""
        raise NotImplementedError

    def readouts(self) -> dict[str, Readout]:
        """Every way to classify, by name."""
        raise NotImplementedError

    @torch.inference_mode()
    def all_scores(self, features: Features, names: Sequence[str]) -> dict[str, Tensor]:
        """Scores (n, classes seen) by several read-outs; changes no state."""
        known = self.readouts()
        return {name: known[name].scores(features) for name in names}

    def scores(self, x: Tensor, readout: str | None = None) -> Tensor:
        name = readout or self.readout
        return self.all_scores(self.features(x), [name])[name]

    @property
    def temperature(self) -> float:
        """By what the scores of the read-out that counts are log-probabilities."""
        return 1.0

    def fair_answers(self) -> tuple[Tensor, Tensor] | None:
        """Answers (m, C) for samples of classes (m,) that they owe nothing to, if there are any."""
        return None

    @property
    def counts_at_once(self) -> bool:
        """Whether the answers can count samples that have not been learned yet."""
        return False

    def counting(self, x: Tensor, y: Tensor) -> AbstractContextManager[None]:
        """Inside, the answers count samples x (n, ...) of classes y (n,) as well."""
        raise NotImplementedError

    @torch.inference_mode()
    def latent_points(self, x: Tensor) -> Tensor:
        """Features (n, d) of raw images as the read-out that counts sees them."""
        return self.readouts()[self.readout].points(self.features(x))

    def centroids(self) -> Centroids | None:
        """What stands for the classes among the latent points."""
        return None

    def diagnose(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        """Plain numbers for the record at a task's end, from test images x of classes y (n,)."""
        return {}
