"""Learning in blocks, by any number of workers in any order: the result is that of one machine.

What a worker makes of a block is a `Tally`: sums of the samples in it, and the few samples that are
wanted themselves. Tallies are added in any order; `absorb` takes the total into a model. Which
samples are wanted, and which count for the choice of the shrinkage, depends on their places in the
order of learning alone (`ocil.moments.schedule`).
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ocil import samples
from ocil.corrections import known_labels
from ocil.data.own import Part
from ocil.errors import OcilError
from ocil.labels import Label
from ocil.learners.fixed import FixedLearner
from ocil.learners.learner import Learner
from ocil.learners.replay import ReplayLearner
from ocil.memory import policies
from ocil.merging import encoder_of, statistics
from ocil.modelfile import Learned
from ocil.moments import ClassMoments
from ocil.moments.schedule import Schedule, schedule
from ocil.moments.sums import ClassSums
from ocil.samples import Form

ANCHORED = ("otc", "er")  # methods with a net whose memory holds images and nothing else


@dataclass
class Some:
    """A few samples: rows (n, ...), class ids (n,) and places (n,)."""

    rows: Tensor
    ids: Tensor
    at: Tensor

    def only(self, which: Tensor) -> Some:
        return Some(self.rows[which], self.ids[which], self.at[which])

    def add(self, other: Some, ids: Tensor) -> Some:
        pairs = ((self.rows, other.rows), (self.ids, ids[other.ids]), (self.at, other.at))
        return Some(*(torch.cat(pair) for pair in pairs)).sorted()

    def sorted(self) -> Some:
        return self.only(self.at.argsort())


@dataclass
class Work:
    """What all blocks have in common: the schedule, and the images that a memory will hold."""

    plan: Schedule
    images: np.ndarray  # places, ascending
    slots: dict[int, int] = field(default_factory=dict)  # place -> slot of the memory

    def early(self, at: np.ndarray) -> np.ndarray:
        return at < (self.plan.choice or 0)


@dataclass
class Tally:
    """What was counted: labels with their counts and first places, sums, and some samples."""

    labels: list[Label]
    counts: Counter[Label]
    first: dict[Label, int]
    sums: list[Any]  # of samples before and after the choice; empty where a method has none
    rest: Some  # features that wait to enter the second moment
    kept: Some  # features that choose the shrinkage
    images: Some  # raw items for the memory

    def add(self, other: Tally) -> Tally:
        """Both together; neither is changed."""
        labels = list(dict.fromkeys([*self.labels, *other.labels]))
        places = {label: i for i, label in enumerate(labels)}
        ids = torch.tensor([places[label] for label in other.labels])
        sums = [copy.deepcopy(mine) for mine in self.sums]
        for mine, theirs in zip(sums, other.sums, strict=True):
            if len(theirs.counts):
                mine.merge(theirs, ids[: len(theirs.counts)])
        both = self.first | other.first
        for label in self.first.keys() & other.first.keys():
            both[label] = min(self.first[label], other.first[label])
        some = (mine.add(theirs, ids) for mine, theirs in self._pairs(other))
        return Tally(labels, self.counts + other.counts, both, sums, *some)

    def _pairs(self, other: Tally) -> list[tuple[Some, Some]]:
        return [(getattr(self, n), getattr(other, n)) for n in ("rest", "kept", "images")]


# -------------------------------------------------------------------- workers


@torch.no_grad()
def tally(model: Learned, work: Work, part: Part, at: np.ndarray) -> Tally:
    """Encode and count samples at these places (n,) in the order of learning."""
    learner = model.session.learner
    form = Form.of(part.items)
    if form != model.form:
        raise OcilError(f"The data hold {form}, but the model learned {model.form}; give those.")
    labels = samples.labels(part.labels, len(at), known_labels(model))
    names = list(dict.fromkeys(labels))
    ids = {label: i for i, label in enumerate(names)}
    y, first = torch.tensor([ids[label] for label in labels]), dict[Label, int]()
    for label, place in zip(labels, at.tolist(), strict=True):
        first[label] = min(place, first.get(label, place))
    encoder = encoder_of(learner)
    assert encoder is not None
    x, places = torch.from_numpy(np.array(part.items)), torch.from_numpy(at)
    needs = bool(statistics(learner))
    z = encoder.encode(x).cpu() if needs else torch.zeros(len(at), 0)
    early, now = (torch.from_numpy(found) for found in (work.early(at), at < work.plan.entered))
    sums = []
    for part_of in statistics(learner).values():
        for which in (early & now, ~early & now):
            sums.append(_count(part_of, z[which], y[which]))
    some = Some(z, y, places)
    wanted = np.isin(at, work.images)
    return Tally(
        names, Counter(labels), first, sums,
        some.only(~now).sorted(),
        some.only(torch.from_numpy(work.plan.kept(at))).sorted() if needs else some.only(y < 0),
        Some(x, y, places).only(torch.from_numpy(wanted)).sorted(),
    )  # fmt: skip


def _count(part: Any, z: Tensor, y: Tensor) -> Any:
    """Statistics of the kind of `part`, of features z (n, d) of classes y (n,)."""
    if isinstance(part, ClassSums):
        found = ClassSums(part.dim, keeps=False)
        found.shift, count = part.shift.cpu(), found.count
    else:
        found = type(part)(z.shape[1], torch.device("cpu"))
        count = found.add
    if len(y):
        count(z, y)
    return found


# -------------------------------------------------------------------- the model


def check_countable(learner: Learner) -> None:
    """Refuse a method whose learning is more than counting."""
    anchored = learner.method in ANCHORED and encoder_of(learner) is not None
    if not isinstance(learner, FixedLearner) and not anchored:
        raise OcilError(
            f"Method {learner.method} trains a net, which blocks in any order cannot; choose one "
            "with exact sums: slda, ncm, ranpac, fecam, knn, or otc for its anchor alone."
        )


def count_first(model: Learned, x: Tensor, labels: Sequence[Label]) -> None:
    """Count samples without training a net, in batches as learning does."""
    session = model.session
    learner, size = session.learner, session.settings.batch
    for start in range(0, len(labels), size):
        items, own = x[start : start + size], labels[start : start + size]
        if isinstance(learner, FixedLearner):
            session.learn(items, own)
        else:
            assert isinstance(learner, ReplayLearner) and learner.anchor
            y = torch.tensor(session.labels.encode(own))
            learner.add_classes(y)
            device = learner.device
            learner.anchor.update(items.to(device), y.to(device), learner.memory, 0, None)
            learner.memory.reservoir(items, y, learner.generators["memory"])
            session.step += 1
        model.counts.update(own)


def plan_work(model: Learned, more: int) -> Work:
    """What is to be known before so many samples more are counted in blocks."""
    learner = model.session.learner
    memory, moments = learner.memory, _moments(learner)
    total = sum(model.counts.values())
    plan = Schedule(total, total + more, None, total + more)
    if isinstance(moments, ClassMoments):
        plan = schedule(moments, more, bool(memory.capacity))
    slots: dict[int, int] = {}
    if memory.capacity:
        draw = learner.generators["memory"]
        chosen = policies.reservoir(memory.seen, memory.capacity, more, draw, len(memory))
        late, early = dict[int, int](), dict[int, int]()  # slot -> place
        for place, slot in enumerate(chosen, start=plan.start):
            if slot >= 0:
                late[slot] = place
                if place < (plan.choice or 0):
                    early[slot] = place
        slots = {place: slot for held in (early, late) for slot, place in held.items()}
    return Work(plan, np.array(sorted(slots), np.int64), slots)


def _moments(learner: Learner) -> Any:
    return next(iter(statistics(learner).values()), None)


@torch.no_grad()
def absorb(model: Learned, work: Work, found: Tally) -> None:
    """Take what was counted into the model, as if it had been learned in order."""
    session, plan = model.session, work.plan
    learner = session.learner
    names = sorted(found.labels, key=lambda label: found.first[label])
    samples.labels(names, len(names), known_labels(model))
    session.labels.encode(names)
    ids = torch.tensor(session.labels.encode(found.labels))
    learner.add_classes(ids)
    device, moments = learner.device, _moments(learner)
    kept, rest = (Some(s.rows.to(device), ids[s.ids].to(device), s.at.to(device))
                  for s in (found.kept, found.rest))  # fmt: skip
    stages = [(plan.choice or 0, plan.choice_share), (plan.entered, plan.share)]
    for stage, (until, share) in enumerate(stages):
        if moments is not None and len(found.sums[stage].counts):
            theirs = found.sums[stage]
            moments.merge(theirs, ids[: len(theirs.counts)].to(device))
        _fill(learner, work, found.images, ids, until if stage == 0 else plan.end)
        if isinstance(moments, ClassMoments) and moments.keeps and until:
            moments.choice[2] = share
            due = kept.only((kept.at < until) & ~torch.isin(kept.at, moments.kept.kept_at))
            moments.kept.add(due.rows, due.ids, due.at, moments.choice[2])
        if stage == 0 and plan.choice and isinstance(moments, ClassMoments):
            _choose(learner, moments)
    if isinstance(moments, ClassMoments) and len(rest.ids):
        moments.add(rest.rows, rest.ids)
    count = sum(found.counts.values())
    learner.memory.seen += count if learner.memory.capacity else 0
    learner.backbone_images += count if isinstance(learner, FixedLearner) else 0
    model.counts.update(found.counts)
    session.step += -(-count // session.settings.batch)
    learner.known = learner.classes
    learner.correct(torch.zeros(0, *learner.shape), torch.zeros(0, dtype=torch.int64))
    answer_by_anchor(model)


def _choose(learner: Learner, moments: ClassMoments) -> None:
    z, y = moments.kept.kept, moments.kept.kept_labels
    if held := len(learner.memory):
        encoder, columns = encoder_of(learner), learner.memory.columns
        assert encoder is not None
        z, y = encoder.encode(columns["x"][:held]), columns["y"][:held]
    if len(y):
        moments.choose(z, y)


def _fill(learner: Learner, work: Work, images: Some, ids: Tensor, until: int) -> None:
    """Write the images from before a place into the slots that a reservoir gave them."""
    held = {work.slots[place]: i for i, place in enumerate(images.at.tolist()) if place < until}
    if held:
        size, index = len(learner.memory), torch.tensor(list(held.values()))
        free = sorted(slot for slot in held if slot >= size)  # some pictures may be missing
        moved = {slot: size + i for i, slot in enumerate(free)}
        slots = [moved.get(slot, slot) for slot in held]
        learner.memory.write(slots, images.rows[index], ids[images.ids[index]])


def answer_by_anchor(model: Learned) -> None:
    """A model whose net has not learned all answers by its anchor."""
    session = model.session
    if not isinstance(session.learner, FixedLearner):
        settings = dataclasses.replace(session.settings, readout="anchor")
        session.settings = session.learner.settings = settings
        session.learner.readout = session.learner.choose_readout()
