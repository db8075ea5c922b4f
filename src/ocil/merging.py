"""Models that share an encoder become the one that saw all their streams.

Exact statistics are sums: counts, class sums and second moments of the parts are added, classes are
united by label. The result does not depend on the order of merges, up to rounding; nor do the
features kept to choose the shrinkage, which is chosen anew at the end. What is not a sum:

- memories are joined by a draw weighted with what each has seen (`ocil.memory.joining`);
- trained nets do not merge: the net starts anew, and the model answers by its anchor.

The first model lends settings and generators.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from ocil import samples
from ocil.corrections import known_labels
from ocil.errors import OcilError, refusing
from ocil.learners.encoder import STAGES, Encoder
from ocil.learners.fixed import FixedLearner
from ocil.learners.jury import Jury
from ocil.learners.learner import Learner
from ocil.learners.parts import Part, strip_prefix
from ocil.learners.replay import ReplayLearner
from ocil.memory import Memory
from ocil.memory.joining import join
from ocil.modelfile import Learned
from ocil.moments import ClassMoments
from ocil.moments.discriminant import FIRST, last_due
from ocil.moments.sums import ClassSums
from ocil.nets.foreign import Foreign, offering
from ocil.session import Session, State

LATEST = 200  # novelties of samples as they came that are kept, as `ocil.answers` does
Weights = Mapping[str, Tensor]


class Merger:
    """One model after another is added; `finish` gives the merged one. None of them is changed."""

    def __init__(self, first: Learned, name: str = "The model") -> None:
        finished(first.session.learner, name)
        _check_finished_learning(first, name)
        self.first, self.hash = first, encoder_sha256(first)
        self.now = _empty_copy(first)
        self._count(first)

    def add(self, other: Learned, name: str) -> None:
        """Add a model; one that does not fit is refused and nothing is changed."""
        mine, theirs = self.first.session, other.session
        if mine.method != theirs.method:
            raise OcilError(
                f"{name} is of method {theirs.method}, the first of {mine.method}; models of one "
                "method merge."
            )
        finished(theirs.learner, name)
        _check_finished_learning(other, name)
        if encoder_sha256(other) != self.hash:
            raise OcilError(
                f"{name} has another encoder than the first; start models that are to be merged "
                "with `ocil learn --encoder-of FIRST` or Classifier.like(first)."
            )
        samples.labels(known_labels(other), len(known_labels(other)), known_labels(self.first))
        if None not in (other.names, self.first.names) and other.names != self.first.names:
            raise OcilError(f"{name} has other feature names than the first.")
        self._count(other)

    def _count(self, other: Learned) -> None:
        now, theirs = self.now, other.session
        mine = now.session.learner
        if theirs.labels.classes:
            ids = torch.tensor(now.session.labels.encode(theirs.labels.classes))
            mine.add_classes(ids)
            for name, part in statistics(mine).items():
                part.merge(statistics(theirs.learner)[name], ids.to(mine.device))  # pyright: ignore
            generator = now.session.generators["memory"]
            for own, their in zip(memories(mine), memories(theirs.learner), strict=True):
                join(own, their, ids.tolist(), generator)
                if isinstance(own, Jury) and isinstance(their, Jury):
                    own.count(their, ids.tolist())
        now.session.step += theirs.step
        mine.backbone_images += theirs.learner.backbone_images
        now.counts.update(other.counts)
        now.arrivals = (now.arrivals + other.arrivals)[-LATEST:]
        now.names = now.names or other.names
        if other.pending:
            x, y = other.pending
            now.pending = (torch.cat([now.pending[0], x]), now.pending[1] + y) if now.pending else (
                x.clone(), list(y)
            )  # fmt: skip

    def finish(self) -> Learned:
        """The merged model; its shrinkage is chosen by samples of all."""
        learner = self.now.session.learner
        learner.known = learner.classes
        learner.correct(torch.zeros(0, *learner.shape), torch.zeros(0, dtype=torch.int64))
        choose_shrinkage(learner)
        return self.now


def _check_finished_learning(model: Learned, name: str) -> None:
    if model.unfinished:
        place = next(iter(model.unfinished.values()))
        raise OcilError(
            f"{name} has learned {place['learned']} of {place['samples']} samples of its data; "
            "finish that with its own command, then merge."
        )
    odd = sorted(model.session.learner.memory.columns.keys() - {"x", "y"})
    if odd:
        raise OcilError(
            f"{name} keeps more than images in its memory ({', '.join(odd)}), which its net has "
            f"said and nets do not merge; method {model.session.method} cannot be merged."
        )


def encoder_of(learner: Learner) -> Encoder | None:
    """The encoder that never moves, if a learner has one."""
    return next(iter(learner.fixed.values()), None)


def finished(learner: Learner, name: str) -> Encoder:
    """The same; a sentence where there is none, or where samples to come change it."""
    encoder = encoder_of(learner)
    if encoder is None:
        raise OcilError(
            f"{name} has no fixed encoder and no exact sums: {learner.method} trains a net, and "
            "nets do not merge; take slda, or a method with an anchor (anchor=auto)."
        )
    if not encoder.finished:
        raise OcilError(
            f"{name} has learned {encoder.first.seen} samples; its encoder is finished, and can be "
            f"shared, after {STAGES[-1]}."
        )
    return encoder


def encoder_sha256(model: Learned) -> str:
    """Equal for models whose features are equal: weights, kind and what is done to the items."""
    learner, settings = model.session.learner, model.session.settings
    encoder = finished(learner, "The model")
    facts: dict[str, object] = {"net": type(encoder.net).__name__, "form": list(model.form)}
    if isinstance(learner, FixedLearner):  # an anchor's encoder has no options
        options = getattr(settings, settings.net, None)
        facts["options"] = dataclasses.asdict(options) if options else None
        facts["inputs"] = settings.inputs, settings.precision
        facts["data"] = settings.data if settings.inputs == "standardized" else None
    return State(dict(encoder.net.state_dict()), facts).sha256()


def lent(learner: Learner) -> Weights:
    """What another learner needs to count in the same space: the encoder, and the sums' shift."""
    found = {f"net.{k}": v for k, v in finished(learner, "The model").net.state_dict().items()}
    for part in statistics(learner).values():
        found |= {"shift": part.shift} if isinstance(part, ClassSums) else {}
    return {name: value.clone() for name, value in found.items()}


def lend(weights: Weights, learner: Learner) -> None:
    """Give that to a learner which is empty."""
    encoder = encoder_of(learner)
    with refusing("The encoder does not fit the settings or the items"):
        if encoder is None:
            raise ValueError(f"{learner.method} has none")
        encoder.net.load_state_dict(strip_prefix(weights, "net."))
        for part in statistics(learner).values():
            if isinstance(part, ClassSums):
                part.shift = weights["shift"].to(part.device, copy=True)


def statistics(learner: Learner) -> dict[str, Part]:
    """The parts that merge, by name."""
    return {name: part for name, part in learner.parts.items() if hasattr(part, "merge")}


def memories(learner: Learner) -> list[Memory]:
    """Memory and jury, where there are any."""
    found = [learner.memory, *([learner.jury] if isinstance(learner, ReplayLearner) else [])]
    return [memory for memory in found if memory.capacity]


def choose_shrinkage(learner: Learner) -> None:
    """By the memory's images, or by the features that are kept; as if it were chosen where one
    stream of as many samples would have chosen last, so that merged models shrink no more."""
    encoder = encoder_of(learner)
    assert encoder is not None
    for part in learner.parts.values():
        if isinstance(part, ClassMoments) and part.total >= FIRST:
            z, y = part.kept.kept, part.kept.kept_labels
            if held := len(learner.memory):
                z = encoder.encode(learner.memory.columns["x"][:held])
                y = learner.memory.columns["y"][:held]
            if len(y):
                part.choose(z, y, last_due(part.total))


def _empty_copy(model: Learned) -> Learned:
    """As the model began, with its encoder; its net is untrained, so the anchor answers."""
    old = model.session
    net, settings = old.learner.model.net, old.settings
    if not isinstance(old.learner, FixedLearner):
        settings = dataclasses.replace(settings, readout="auto")
    with offering(copy.deepcopy(net.module) if isinstance(net, Foreign) else None):
        session = Session(old.method, settings, old.shape)
    for purpose, generator in old.generators.items():
        session.generators[purpose].set_state(generator.get_state())
    lend(lent(old.learner), session.learner)
    return Learned(session, model.form, model.channels, model.names)
