"""The anchor: class statistics in a space that never moves, beside the one a method learns.

A fixed encoder (`ocil.learners.encoder`) and exact moments (`ocil.moments`) take every sample of
the stream once. The anchor only reads: it changes no gradient, no draw and no memory, so one run
yields the method's own read-outs as they are without it, and two more:

    anchor   the linear discriminant of the moments
    fused    its log-linear pool with the net's answer (`ocil.learners.pool`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ocil import nets, rng
from ocil.learners.encoder import Encoder
from ocil.learners.parts import Part, Weights
from ocil.learners.pool import EVERY, Pool
from ocil.learners.readouts import Centroids, Features, Readout
from ocil.memory import Memory
from ocil.moments import ClassMoments
from ocil.moments.novelty import left_out, left_out_scores, novelty
from ocil.settings import Settings

Scores = Callable[[Features], Tensor]


class Anchor:
    def __init__(self, settings: Settings, shape: Sequence[int], keeps: bool) -> None:
        """`keeps`: there is no memory whose images choose the shrinkage."""
        device = torch.device(settings.device)
        seed = rng.generator(settings.seed, "anchor")
        kind = nets.fixed_for(shape) if settings.anchor == "auto" else settings.anchor
        net = nets.build(kind, shape, width=settings.anchor_width, generator=seed)
        self.encoder = Encoder(net.to(device).requires_grad_(False).eval(), device)
        self.moments = ClassMoments(int(net.features), device, keeps)  # pyright: ignore
        self.pool = Pool(device)
        self.parts: dict[str, Part] = {
            "anchor.net": Weights(net),
            "anchor.first": self.encoder.first,
            "anchor.moments": self.moments,
            "anchor.pool": self.pool,
        }

    @torch.no_grad()
    def update(
        self,
        x: Tensor,
        y: Tensor,
        memory: Memory,
        known: int,
        net: Callable[[Tensor], Tensor] | None,
    ) -> None:
        """Count samples x (n, ...) of classes y (n,), of which those below `known` had come before.

        `net`: log-probabilities (n, classes) of raw images by what was learned, if they are to be
        fused; asked for now and then.
        """
        seen, old = self.moments.total, y < known
        look = seen // EVERY < (seen + len(y)) // EVERY
        if net and look and len(y[old].unique()) > 1:
            asked = x[old]
            self.pool.watch(self.tempered(self.encoder.encode(asked)), net(asked), y[old])
        anew, x, y = self.encoder.take(x, y)
        if anew:
            self.moments.reset()
        self.moments.add(self.encoder.encode(x), y)
        if len(memory) and self.moments.until_due <= 0:
            self.moments.choose(*self.held(memory))

    def correct(self, x: Tensor, y: Tensor, new: Tensor | None) -> None:
        """Take samples of classes y (n,) back; count them under classes `new` if given."""
        sums = self.moments
        self.encoder.correct((sums.reset, sums.add, sums.remove), x, y, new)

    def tempered(self, z: Tensor) -> Tensor:
        """Features (n, d) -> t times the scores (n, C)."""
        return self.moments.scores(z) * self.temperature

    @property
    def temperature(self) -> float:
        return float(self.moments.choice[3])

    def tempered_without(self, z: Tensor, y: Tensor) -> Tensor:
        """The same for samples that are counted, as if each had never come."""
        return left_out_scores(self.moments, z, y) * self.temperature

    def readouts(
        self, net: Scores | None, memory: Memory, weights: Callable[[], tuple[float, float]]
    ) -> dict[str, Readout]:
        """`net`: log-probabilities by what was learned; None: there is nothing to fuse with.

        `weights`: how much the anchor's and the net's word count.
        """

        def anchor(features: Features) -> Tensor:
            return self.moments.scores(features["anchor"])

        def fused(features: Features) -> Tensor:
            assert net is not None
            own, other = weights()
            found = self.tempered(features["anchor"]) * own
            return found + other * net(features) if other else found

        ways = {"anchor": anchor} | ({"fused": fused} if net else {})
        return {
            name: Readout(
                way,
                lambda f: f["anchor"],
                self.centroids,
                novelty=lambda f: novelty(self.moments, f["anchor"]),
                left_out=lambda: self.left_out(memory),
            )
            for name, way in ways.items()
        }

    @torch.inference_mode()
    def left_out(self, memory: Memory) -> Tensor | None:
        """Novelty of the samples held, as if they had never come."""
        z, y = self.held(memory)
        return left_out(self.moments, z, y) if len(y) else None

    def held(self, memory: Memory) -> tuple[Tensor, Tensor]:
        """Features (m, d) and classes (m,) of the samples held."""
        if not len(memory):
            return self.moments.kept.kept, self.moments.kept.kept_labels
        held = slice(len(memory))
        return self.encoder.encode(memory.columns["x"][held]), memory.columns["y"][held]

    def centroids(self) -> Centroids:
        return at_means(self.moments.means)


def at_means(means: Tensor) -> Centroids:
    """One centroid a class: its mean (C, d)."""
    ids = torch.arange(len(means), device=means.device)
    return Centroids(means.float(), ids, torch.ones_like(ids, dtype=torch.float32))
