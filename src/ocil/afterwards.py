"""What is done to a classifier that has learned: taking back, correcting, training it once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

from torch import Tensor

from ocil import corrections, ranges, samples
from ocil.consolidation import MOST, Gain, consolidate, updates_within
from ocil.estimator import not_fitted
from ocil.labels import Label
from ocil.mergeable import Mergeable
from ocil.modelfile import Learned
from ocil.session import Session, WayBack


class Afterwards(Mergeable):
    _restart: bool
    _told: bool  # that vectors have left their range

    def flush(self) -> Self:
        raise NotImplementedError

    def _begin(self, shape: tuple[int, ...]) -> Session:
        raise NotImplementedError

    def _learn(self, now: Learned, x: Tensor, labels: list[Label], whole: int) -> None:
        raise NotImplementedError

    def forget(self, label: Label) -> Self:
        """Forget a class: its memory, mixture, mean, head row and count; its name is free.

        >>> import numpy as np, ocil
        >>> x, y = np.eye(3, dtype=np.float32).repeat(10, 0), np.arange(3).repeat(10)
        >>> ocil.Classifier("slda", net="identity").partial_fit(x, y).forget(1).classes_.tolist()
        [0, 2]

        What all classes share keeps a trace of it: trained weights, and the covariance within
        classes; `forget_samples` with all its samples takes it out of the covariance as well.
        """
        return self._correct(lambda now: corrections.forget(now, label))

    def forget_samples(self, X: Any, y: Any) -> Self:
        """Take samples back, given as they were learned: out of memory, counts and exact sums.

        The sums of slda, ncm, ranpac, fecam and of the anchor are then those of a model that never
        saw them; a class without samples is forgotten. Trained weights and mixtures keep a trace.
        """
        x, _ = self._items(X)
        labels = samples.labels(y, len(x), [])
        return self._correct(lambda now: corrections.forget_samples(now, x, labels))

    def relabel(self, X: Any, y: Any, new: Any) -> Self:
        """Samples that were learned with labels y have the labels `new`, old or unheard of.

        >>> import numpy as np, ocil
        >>> x, y = np.eye(2, dtype=np.float32).repeat(10, 0), ["cat"] * 10 + ["dog"] * 10
        >>> model = ocil.Classifier("slda", net="identity").partial_fit(x, y)
        >>> model.relabel(x[:2], ["cat"] * 2, ["dog"] * 2).counts_
        {'cat': 8, 'dog': 12}
        """
        x, _ = self._items(X)
        labels = samples.labels(y, len(x), [])
        return self._correct(lambda now: corrections.relabel(now, x, labels, new))

    def consolidate(self, seconds: float | None = None, updates: int = MOST) -> Gain:
        """Train on the memory alone until the jury stops improving, or for `updates` steps.

        `seconds` are turned into a number of steps first, which `Gain.updates` shows: the same
        number leads to the same bits. Without a jury (a memory below 100) all steps are taken.
        """
        session = self.flush()._fitted().session
        if seconds is not None:
            updates = min(updates, updates_within(session, seconds))
        self._way_back = WayBack()
        return consolidate(session, updates)

    def rescale(self) -> Self:
        """Start anew from the samples held: scale, encoder, weights and sums see these alone.

        For data that have moved out of the range of the first samples, which fixed the scale.
        Classes of which memory and jury hold nothing are forgotten; `consolidate` may follow.
        """
        now, other = self.flush()._fitted(), type(self)(**self.get_params())
        x, labels = ranges.held_samples(now)
        fresh = replace(now, session=other._begin(now.form.shape), counts=Counter(), arrivals=[])
        other._learned = fresh
        other._learn(fresh, x, labels, whole=len(labels))
        self._learned, self._way_back, self._told = fresh, WayBack(), False
        return self

    def _correct(self, correction: Callable[[Learned], None]) -> Self:
        """Take something back; a classifier that has nothing left is as new."""
        self._check_whole()
        if (now := self._learned) is None:
            raise not_fitted("This Classifier is not fitted yet: there is nothing to take back.")
        correction(now)
        now.session.learner.settle()
        self._way_back = WayBack()
        if not now.session.labels.classes:
            now.session, self._restart = self._begin(now.form.shape), True
            self._learned = now if now.pending else None
        return self
