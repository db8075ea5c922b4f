"""What a replay learner asks of its jury (`ocil.learners.jury`): weights, temperature, accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.learners.jury import FEW

if TYPE_CHECKING:
    from ocil.learners.replay import ReplayLearner


@torch.inference_mode()
def words(learner: ReplayLearner[Any]) -> tuple[list[Tensor], list[float]]:
    """What the jurors are told (m, C), word by word, and the weights to begin with."""
    jury, anchor, readout = learner.jury, learner.anchor, learner.readout
    held = slice(len(jury))
    features, y = learner.features(jury.columns["x"][held]), jury.columns["y"][held]
    if not anchor or readout not in ("fused", "anchor"):
        said = learner.readouts()[readout].scores(features)
        new = learner.classes - said.shape[1]  # classes of which nothing has been learned yet
        return [F.pad(said, (0, new), value=-torch.inf)], [1.0]
    own = anchor.tempered_without(features["anchor"], y)
    net = learner.learned_scores() if readout == "fused" and learner.trained else None
    return ([own, net(features)], [1.0, anchor.pool.weight]) if net else ([own], [1.0])


def pool_weights(learner: ReplayLearner[Any]) -> tuple[float, float]:
    """How much the anchor's and the net's word count in `fused`: by the jury, once it was asked."""
    assert learner.anchor is not None
    if learner.anchor.moments.classes > learner.classes:
        return 1.0, 0.0  # the net has never heard of a class that waits
    own, *net = learner.jury.weights or [1.0]
    if learner.jury.weights and len(net) == learner.trained:
        return own, net[0] if net else 0.0
    return 1.0, learner.anchor.pool.weight if learner.trained else 0.0


def temperature(learner: ReplayLearner[Any]) -> float:
    """By what the scores of the read-out that counts are log-probabilities."""
    if learner.readout == "fused":
        return 1.0
    own = learner.anchor.temperature if learner.anchor and learner.readout == "anchor" else 1.0
    return own * (learner.jury.weights[0] if learner.jury.weights else 1.0)


@torch.inference_mode()
def fair_answers(learner: ReplayLearner[Any]) -> tuple[Tensor, Tensor] | None:
    """Answers (m, C) for samples of classes (m,): jurors, or the memory's if nothing is trained."""
    jury, anchor = learner.jury, learner.anchor
    if anchor and (learner.readout == "anchor" or not learner.trained):
        z, y = anchor.held(learner.memory)
        return (anchor.tempered_without(z, y), y) if len(y) else None
    if len(jury) < FEW:
        return None
    return jury.crosswise(*words(learner)), jury.columns["y"][: len(jury)]
