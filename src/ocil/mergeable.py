"""Classifiers that share an encoder: one begins like another, and several become one."""

from __future__ import annotations

from typing import Any, Self

import torch

from ocil.answers import Answers
from ocil.labels import Label
from ocil.merging import Merger, Weights, lent
from ocil.modelfile import Learned
from ocil.nets.foreign import Foreign
from ocil.session import WayBack
from ocil.settings import to_mapping


class Mergeable(Answers):
    _way_back: WayBack
    _encoder: Weights | None = None  # a finished one to begin with

    def __init__(self, **params: Any) -> None:
        raise NotImplementedError

    def _learn(self, now: Learned, x: torch.Tensor, labels: list[Label], whole: int) -> None:
        raise NotImplementedError

    @classmethod
    def like(cls, model: Mergeable, **changes: Any) -> Self:
        """A new classifier with the settings and the finished encoder of another, empty otherwise.

        What two such models learn can be merged. `changes` are settings that leave the encoder as
        it is, such as seed=1.
        """
        now = model._fitted()
        fresh = cls(**params_of(now) | changes)
        fresh._encoder = lent(now.session.learner)
        return fresh

    def merge(self, *others: Mergeable) -> Self:
        """Become the model that has seen the streams of the others as well; see `ocil.merging`.

        >>> import numpy as np, ocil
        >>> x, y = np.eye(4, dtype=np.float32).repeat(10, 0), np.arange(4).repeat(10)
        >>> a = ocil.Classifier("slda", net="identity").partial_fit(x[:20], y[:20])
        >>> b = ocil.Classifier("slda", net="identity").partial_fit(x[10:], y[10:])
        >>> a.merge(b).counts_
        {0: 10, 1: 20, 2: 10, 3: 10}

        Sums are exact, whatever the order of merges; memories are joined by a draw. Nets do not
        merge: a model with an anchor answers by its anchor from then on. The others stay as they
        are, and a call that raises has changed nothing.
        """
        self._check_whole()
        merger = Merger(self._fitted())
        for i, other in enumerate(others, start=2):
            other._check_whole()
            merger.add(other._fitted(), f"Model {i}")
        self._take(merger.finish())
        return self

    def _take(self, now: Learned) -> None:
        """Take up what was merged, and learn what waits as far as it is whole batches."""
        self._learned, self._way_back = now, WayBack()
        if now.session.settings.readout != self._given.get("readout", "auto"):
            self._given["readout"] = now.session.settings.readout
        if waiting := now.pending:
            size = now.session.settings.batch
            self._learn(now, *waiting, whole=self.pending_ - self.pending_ % size)


def params_of(learned: Learned) -> dict[str, Any]:
    """Parameters of a classifier that begins as this one did."""
    session = learned.session
    net = session.learner.model.net
    own = {"net": net.module} if isinstance(net, Foreign) else {}
    named = {"method": session.method, "channels": learned.channels}
    return named | to_mapping(session.settings) | own
