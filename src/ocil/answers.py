"""What a classifier says of items: scores, labels, probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocil import samples
from ocil.errors import OcilError
from ocil.estimator import Estimator, feature_names
from ocil.learners.learner import Learner
from ocil.samples import BadInput, Channels

MAX_SCORES = 1 << 24  # scores of all components held at a time while predicting
PART = 120  # items scored together, at most
TILE = 4  # items are scored in multiples of it


class Answers(Estimator):
    channels: Channels
    _torn: str

    def _check_whole(self) -> None:
        if self._torn:
            raise OcilError(
                f"Learning failed half-way in an earlier call ({self._torn}); load the model that "
                "was saved before it."
            )

    def _items(self, X: Any) -> tuple[torch.Tensor, list[str] | None]:
        """X as items like those learned before, and the names of its columns."""
        now, names = self._learned, feature_names(X)
        channels, form = (now.channels, now.form) if now else (self.channels, None)
        x = torch.from_numpy(samples.items(X, channels, form))
        known = now.names if now else None
        if names and known and names != known:
            raise BadInput(
                "The feature names should match those that were passed during fit, in the same "
                f"order: {', '.join(known[:5])} ..."
            )
        return x, known or names

    def scores(self, X: Any, readout: str | None = None) -> np.ndarray:
        """Scores (n, classes) of a read-out, larger is likelier; changes no state."""
        learner = self._fitted().session.learner
        self._check_whole()
        x, _ = self._items(X)
        if readout is not None and readout not in learner.readouts():
            raise OcilError(f"No read-out '{readout}'; there are {', '.join(learner.readouts())}.")
        return score_all(learner, x, readout).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest label of each item (n,)."""
        return self.classes_[self.scores(X).argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Softmax of the scores (n, classes), columns in the order of `classes_`."""
        scores = torch.from_numpy(self.scores(X)).double()
        scores = scores.masked_fill((scores == -torch.inf).all(1, keepdim=True), 0.0)
        return scores.softmax(1).numpy()


def score_all(learner: Learner, x: Tensor, readout: str | None = None) -> Tensor:
    """Scores (n, classes) of items x (n, ...), the bits of each whatever else is in the call.

    Products of matrices take other paths for the rows left over by fours, so a part is filled up.
    """
    most = MAX_SCORES // (8 * learner.classes)
    found = []
    for part in x.split(max(TILE, min(PART, most // TILE * TILE))):
        spare = part[-1:].expand(-len(part) % TILE, *part.shape[1:])
        found.append(learner.scores(torch.cat([part, spare]), readout)[: len(part)].cpu())
    return torch.cat(found)
