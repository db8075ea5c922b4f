"""A latent stream with drift, recorded from a real run: what `em_versus_mmot.py` feeds on.

A short run of OTC on MNIST (on the bundled digits where MNIST is not there) with Dynamic
Preservation off and a memory filled at random: no mixture has a hand in the features, so none is
favoured. Kept are, step by step, the unit features of stream and replay through the averaged
weights, as the mixtures get them; and with the weights of the moment those of test images, of the
memory (every `EVERY` steps) and of all images of a task (at its end).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import data
from ocil.errors import OcilError
from ocil.learners import registry
from ocil.learners.otc import Otc
from ocil.session import Session
from ocil.settings import Settings, to_mapping
from ocil.stream import Stream, probe_indices

EVERY = 50  # steps between two looks at test images and memory
PROBE = 1000  # test images
Features = tuple[Tensor, Tensor]  # unit features (n, d) and class ids (n,)


class Moment(NamedTuple):
    """One step of the stream, and what only some steps have."""

    points: Features  # replayed ones first
    held_out: Features | None  # test images of the classes seen
    memory: Features | None  # all it holds
    task: Features | None  # all images of the task that ends here


class Latents(NamedTuple):
    settings: dict[str, Any]
    moments: list[Moment]
    dim: int


class Recorder(Otc):
    """OTC that keeps the features its mixtures were given."""

    latest: Features

    def update_mixtures(self, z: Tensor, y: Tensor) -> None:
        super().update_mixtures(z, y)
        self.latest = z.clone(), y.clone()


def record(seed: int, limit: int) -> Latents:
    """The stream of a seed, `limit` training images a class."""
    name, dataset = _dataset()
    given = {"data": name, "seed": seed, "limit_per_class": limit}
    given |= {"preserve": 0.0, "choice": "random"}
    settings = registry.make_settings("otc", registry.resolve("otc", given)[0])
    return _follow(settings, dataset)


def _dataset() -> tuple[str, data.Dataset]:
    try:
        return "mnist", data.load("mnist")
    except OcilError:
        return "digits", data.load("digits")


def _follow(settings: Settings, dataset: data.Dataset) -> Latents:
    images, labels = dataset.train_images, dataset.train_labels
    stream, session = Stream(labels, settings), Session(Recorder, settings, images.shape[1:])
    every = min(EVERY, max(1, stream.n_batches // 20))
    learner, moments = session.learner, []
    assert isinstance(learner, Recorder)
    probe = probe_indices(dataset.test_labels, PROBE)
    held_out = dataset.test_images[probe], dataset.test_labels[probe]
    for batch in stream.batches():
        session.learn(images[batch.indices], labels[batch.indices].tolist())
        due = batch.ends_task or session.step % every == 0
        task = stream.phase_indices(batch.task)
        moments.append(
            Moment(
                learner.latest,
                _look(session, *held_out) if due else None,
                _memory(learner) if due else None,
                _look(session, images[task], labels[task]) if batch.ends_task else None,
            )
        )
    return Latents(to_mapping(settings) | {"every": every}, moments, learner.mixtures.dim)


@torch.no_grad()
def _look(session: Session, images: np.ndarray, labels: np.ndarray) -> Features:
    """Features of those images whose class has been seen."""
    learner = session.learner
    assert isinstance(learner, Otc)
    seen = np.isin(labels, session.labels.classes)
    y = torch.tensor(session.labels.encode(labels[seen].tolist()))
    x = torch.from_numpy(np.ascontiguousarray(images[seen]))
    return F.normalize(learner.encode(learner.latent, x), dim=1), y


@torch.no_grad()
def _memory(learner: Otc) -> Features:
    x, y = learner.memory_items()
    return F.normalize(learner.encode(learner.latent, x), dim=1), y


def drift(latents: Latents) -> float:
    """How far class means of held-out features go between their first look and the last, in units
    of the class's rms distance from its mean; the mean over the classes."""
    first: dict[int, tuple[Tensor, Tensor]] = {}
    last: dict[int, Tensor] = {}
    for moment in latents.moments:
        if moment.task and moment.held_out:
            z, y = moment.held_out
            for c in y.unique().tolist():
                own = z[y == c]
                spread = (own - own.mean(0)).square().sum(1).mean().sqrt()
                first.setdefault(c, (own.mean(0), spread))
                last[c] = own.mean(0)
    newest = max(first)
    gone = [(last[c] - m).norm() / s for c, (m, s) in first.items() if c < newest - 1]
    return float(torch.stack(gone).mean())
