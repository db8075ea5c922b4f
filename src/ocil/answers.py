"""What a classifier says of items: scores, labels, probabilities, and how foreign they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ocil import backbones, samples
from ocil.backbones import Backbone
from ocil.errors import OcilError
from ocil.estimator import Estimator, feature_names
from ocil.labels import Label
from ocil.learners.jury import Score, score
from ocil.learners.learner import Learner
from ocil.modelfile import Learned
from ocil.samples import BadInput, Channels
from ocil.session import Session

MAX_SCORES = 1 << 24  # scores of all components held at a time while predicting
PART = 120  # items scored together, at most
TILE = 4  # items are scored in multiples of it
FLAGGED = 0.05  # share of samples of known classes that are taken for unknown
LOOK = 100  # samples from one look at those that come to the next
LATEST = 200  # samples of such looks that are kept
FEW = 20  # samples from which that can be told


class Answers(Estimator):
    net: str | nn.Module
    channels: Channels
    _torn: str
    _backbone: Backbone | None  # that `net` names, once it was found
    _first: tuple[Learned, Tensor, list[Label]] | None = None  # see `_fitted`

    def _fitted(self) -> Learned:
        """What answers: before the first batch is whole, statistics of what there is of it."""
        now = self._learned
        if now is None or now.session.labels.classes or not now.classes or not now.pending:
            return super()._fitted()
        x, labels = now.pending
        if self._first is None or self._first[1] is not x or self._first[2] != labels:
            usual = type(now.session.settings).max_updates  # of no effect where nothing is trained
            low = replace(now.session.settings, effort="low", jury=False, max_updates=usual)
            session = Session(now.session.method, low, now.session.shape)
            session.learn(x, labels)
            found = Learned(session, now.form, now.channels, now.names, counts=Counter(labels))
            self._first = found, x, labels.copy()
        return self._first[0]

    def _check_whole(self) -> None:
        if self._torn:
            raise OcilError(
                f"Learning failed half-way in an earlier call ({self._torn}); load the model that "
                "was saved before it."
            )

    def _front(self) -> Backbone | None:
        """What makes vectors of texts or pictures, if `net` names a backbone."""
        if self._learned or not backbones.named(self.net):
            return self._learned.backbone if self._learned else None
        if self._backbone is None or self._backbone.name != self.net:
            device = str(self._given.get("device", "cpu"))
            self._backbone = backbones.find(str(self.net), device)
        return self._backbone

    def _items(self, X: Any) -> tuple[torch.Tensor, list[str] | None]:
        """X as items like those learned before, and the names of its columns."""
        now, names = self._learned, feature_names(X)
        channels, form = (now.channels, now.form) if now else (self.channels, None)
        if front := self._front():
            X = front.vectors(X, channels)
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
        now = self._fitted()
        with now.counting() if readout in (None, learner.readout) else nullcontext():
            return in_parts(lambda part: learner.scores(part, readout), x, len(now.classes)).numpy()

    def predict(self, X: Any, unknown: Label | None = None) -> np.ndarray:
        """The likeliest label of each item (n,); `unknown`: the label for items of no class.

        Those are the items whose `novelty` is above that of 95 % of samples of known classes, as
        far as that is known from samples that were not learned.

        >>> import numpy as np, ocil
        >>> x = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
        >>> y = np.repeat(["low", "high"], 200)
        >>> x[y == "high"] += 9
        >>> model = ocil.Classifier("slda", net="identity").partial_fit(x, y)
        >>> model.predict(np.float32([[0] * 4, [9] * 4, [9, 0, 0, 9]]), unknown="?").tolist()
        ['low', 'high', '?']
        """
        found = self.classes_[self.scores(X).argmax(1)]
        if unknown is None:
            return found
        samples.labels([unknown], 1, self.classes_[:1].tolist())
        foreign = self.novelty(X) > self.novelty_threshold()
        return np.array([unknown if f else a for a, f in zip(found.tolist(), foreign, strict=True)])

    def novelty(self, X: Any) -> np.ndarray:
        """How foreign each item is to all classes learned (n,), larger is stranger.

        By exact statistics where the read-out has them (slda, the anchor): the Mahalanobis distance
        to the nearest class, beside that to all samples together (`ocil.moments.novelty`).
        Otherwise by the largest score, or minus the log-probability of the likeliest class.
        """
        learner = self._fitted().session.learner
        self._check_whole()
        x, now = self._items(X)[0], self._fitted()
        with now.counting():
            return in_parts(partial(novelty, learner), x, len(now.classes)).numpy()

    def novelty_threshold(self) -> float:
        """What 95 % of samples of known classes stay below: held ones as if they had never come,
        where exact statistics can tell, else the latest as they came, before they were learned."""
        now = self._fitted()
        self._check_whole()
        learner = now.session.learner
        left_out = learner.readouts()[learner.readout].left_out
        if left_out and "novelty" not in learner.cache and (found := left_out()) is not None:
            learner.cache["novelty"] = found
        known = learner.cache.get("novelty", torch.tensor(now.arrivals))
        if len(known) < FEW:
            raise OcilError(
                f"What is unknown cannot be told from {len(known)} samples; give {FEW} or more of "
                "classes that were learned before."
            )
        return float(known.double().quantile(1 - FLAGGED))

    @property
    def score_(self) -> Score | None:
        """Share of right answers on what is to come, by samples that were not learned.

        Those of the jury, where a net is trained, else of samples left out one at a time; None
        while there are too few. `by_class` has right answers and samples asked of each label.
        """
        now = self._fitted()
        if (found := now.session.learner.fair_answers()) is None:
            return None
        labels, counts = now.session.labels.classes, now.counts
        said = score(*found, [counts[label] for label in labels])
        return said._replace(
            by_class={labels[c]: n for c, n in said.by_class.items()},
            confused={(labels[c], labels[d]): n for (c, d), n in said.confused.items()},
        )

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities (n, classes), columns in the order of `classes_`.

        Softmax of the scores, at the temperature that the jury or left-out samples chose.
        """
        learner = self._fitted().session.learner
        scores = torch.from_numpy(self.scores(X)).double() * learner.temperature
        scores = scores.masked_fill((scores == -torch.inf).all(1, keepdim=True), 0.0)
        return scores.softmax(1).numpy()


@torch.inference_mode()
def novelty(learner: Learner, x: Tensor) -> Tensor:
    """How foreign raw items are to all classes seen (n,), by the read-out that counts."""
    features, readout = learner.features(x), learner.readouts()[learner.readout]
    if readout.novelty:
        return readout.novelty(features)
    return -readout.scores(features).log_softmax(1).amax(1)


def in_parts(ask: Callable[[Tensor], Tensor], x: Tensor, classes: int) -> Tensor:
    """Answers (n, ...) for items x (n, ...), the bits of each whatever else is in the call.

    Products of matrices take other paths for the rows left over by fours, so a part is filled up.
    """
    most = MAX_SCORES // (8 * classes)
    found = []
    for part in x.split(max(TILE, min(PART, most // TILE * TILE))):
        spare = part[-1:].expand(-len(part) % TILE, *part.shape[1:])
        found.append(ask(torch.cat([part, spare]))[: len(part)].cpu())
    return torch.cat(found)


def arrive(now: Learned, x: Tensor, labels: Sequence[Label]) -> list[float]:
    """`arrivals` with the novelty of a batch that is about to be learned; few are asked."""
    learner, old = now.session.learner, [i for i, own in enumerate(labels) if now.counts[own]]
    size = now.session.settings.batch
    due = now.session.step * size % LOOK < size
    if not due or not old or learner.readouts()[learner.readout].left_out:
        return now.arrivals
    found = novelty(learner, x[old])
    return [*now.arrivals, *found[found.isfinite()].tolist()][-LATEST:]
