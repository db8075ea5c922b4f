"""Training on the memory alone, after the stream: until the jury stops improving."""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

import torch

from ocil.errors import OcilError
from ocil.learners import judging
from ocil.learners.jury import FEW, answer, weigh
from ocil.learners.replay import ReplayLearner
from ocil.run.process import check_call
from ocil.run.signals import interrupts_between_steps
from ocil.session import Session

ROUND = 20  # gradient steps from one question to the jury to the next
PATIENCE = 3  # rounds without a better answer
MOST = 1000  # gradient steps, where nothing else is said
WEIGHTS = ("model", "average", "optimizer")  # parts that are trained


class Gain(NamedTuple):
    """What consolidation did: the gradient steps that count, and the jury's log-loss."""

    updates: int
    before: float  # nan without a jury
    after: float


def consolidate(session: Session, updates: int = MOST) -> Gain:
    """Replay the memory for at most so many gradient steps; the best weights by the jury stay."""
    learner, asked = _trainable(session), len(_trainable(session).jury) >= FEW
    before = best = _loss(learner) if asked else math.nan
    kept, at, done, report = _weights(learner), 0, 0, {}
    with interrupts_between_steps() as stop:
        while done < updates and not stop and done - at < PATIENCE * ROUND:
            for _ in range(min(ROUND, updates - done)):
                report["loss"] = _step(learner)
                done += 1
            if not asked:
                at = done
            elif not (loss := _loss(learner)) >= best:
                kept, at, best = _weights(learner), done, loss
    check_call(session, report)
    if at < done:
        for name, state in kept.items():
            learner.parts[name].load_state_dict(state, learner.classes)
    if at:
        learner.rehearsed()
    if asked:
        learner.jury.judge(*judging.words(learner))
    learner.cache.clear()
    if stop:
        raise KeyboardInterrupt(f"{at} gradient steps on the memory were kept.")
    return Gain(at, before, best)


def updates_within(session: Session, seconds: float) -> int:
    """How many gradient steps on the memory take so long here; the state is left as it is."""
    learner, state = _trainable(session), session.state()
    tensors = {name: value.detach().clone() for name, value in state.tensors.items()}
    _step(learner)  # the first one makes the optimiser's state
    start = time.perf_counter()
    for _ in range(3):
        _step(learner)
    step = (time.perf_counter() - start) / 3
    session.load(state._replace(tensors=tensors))
    return max(1, int(seconds / step))


def _trainable(session: Session) -> ReplayLearner[Any]:
    learner = session.learner
    if not isinstance(learner, ReplayLearner) or learner.learned_scores() is None:
        raise OcilError(f"{session.method} has no net with a head that a memory could train.")
    if not len(learner.memory) or not any(w.requires_grad for w in learner.model.parameters()):
        raise OcilError("There is nothing to consolidate: no memory, or no weights to train.")
    return learner


def _step(learner: ReplayLearner[Any]) -> torch.Tensor:
    """One gradient step on the memory alone -> its loss."""
    s = learner.settings
    old = learner.memory.draw(s.batch + s.replay, learner.generators["memory"], s.retrieval)
    loss = learner.rehearsal_loss(learner.augmented(old["x"]), old["y"])
    return learner.optimizer_step(loss)


def _weights(learner: ReplayLearner[Any]) -> dict[str, dict[str, torch.Tensor]]:
    return {
        name: {k: v.detach().clone() for k, v in learner.parts[name].state_dict().items()}
        for name in WEIGHTS
        if name in learner.parts
    }


def _loss(learner: ReplayLearner[Any]) -> float:
    """Mean log-loss of the jurors, by weights of their own: the same question before and after."""
    words, start = judging.words(learner)
    y = learner.jury.columns["y"][: len(learner.jury)]
    said = answer(words, weigh(words, y, start)).log_softmax(1)
    return float(-said.gather(1, y[:, None]).clamp(min=-20).mean())
