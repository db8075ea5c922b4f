"""SLDA: streaming discriminant analysis (Hayes and Kanan, CVPR workshops 2020, arXiv 1909.01520).

On a fixed encoder (`ocil.nets`: `patches` for images, `random` for vectors), made after exactly 1,
10, 40 and 300 samples; until then raw samples are kept and all sums made anew, then dropped. One
exact mean a class and one covariance shared by all, from counts and sums alone:

    score_c(x) = mu_c' Sigma^-1 h(x) - mu_c' Sigma^-1 mu_c / 2,
    Sigma = (1 - rho) S + rho tr(S)/d I

No gradient, no replay, one pass, any order of the classes; nothing is forgotten.

| symbol | here            | meaning                                     |
|--------|-----------------|---------------------------------------------|
| h      | model.net       | the encoder, fixed after 300 samples        |
| mu     | moments.means   | exact class means (C, d)                    |
| S      | moments         | covariance within classes                   |
| rho    | moments.choice  | shrinkage, see `ocil.moments`               |

Differs from the reference code: the encoder is made from the stream where no trained one is given;
S is the exact within-class covariance of all samples (there a running update), and rho is chosen by
leave-one-out loss (there 1e-4), of the memory's images where `memory` is given, else of features
that are kept. Preset `randumb` is RanDumb (Prabhu et al., NeurIPS 2024): random Fourier features of
the pixels, here 4 000 of them (32 MB of moments) where the original has 25 000 (1.25 GB).

Cost: no gradient. d^2 numbers: 16 MB with 250 filters, 41 MB with 400 (colour). A prediction after
new samples solves for the classes, and factors Sigma (d^3/3) after each new block.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ocil.learners.anchor import at_means
from ocil.learners.fixed import FixedLearner, FixedSettings, plain
from ocil.learners.learner import Report
from ocil.learners.readouts import Readout
from ocil.moments import ClassMoments
from ocil.moments.novelty import left_out, left_out_scores, novelty
from ocil.stream import Batch

RANDUMB = {"net": "random", "random.kind": "fourier", "width": 4000}


class Slda(FixedLearner[FixedSettings]):
    method = "slda"
    title = "Streaming linear discriminant analysis"
    paper = "Hayes and Kanan, Lifelong Machine Learning with Deep Streaming LDA"
    year = 2020
    memory_policy = "none, or a reservoir that chooses the shrinkage"
    own_readout = "linear"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}, "randumb": RANDUMB}
    statistics = ClassMoments

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.moments = self.statistics(self.dim, self.device, keeps=not self.memory.capacity)
        self.parts["moments"] = self.moments
        self.readout = self.choose_readout()

    def restart(self) -> None:
        self.moments.reset()

    def step(self, batch: Batch) -> Report:
        """In pieces that end where the memory chooses: it holds the same whatever the batches."""
        whole, at = len(batch.y), 0
        while at < whole:
            end = at + max(1, self.moments.until_due) if self.memory.capacity else whole
            super().step(replace(batch, x=batch.x[at:end], y=batch.y[at:end]))
            at = end
        return {}

    def count(self, z: Tensor, y: Tensor) -> None:
        self.moments.add(z, y)
        if len(self.memory) and self.moments.until_due <= 0:
            self.moments.choose(*self.held_features())

    def uncount(self, z: Tensor, y: Tensor) -> None:
        self.moments.remove(z, y)

    def readouts(self) -> dict[str, Readout]:
        moments = self.moments
        return {
            self.own_readout: plain(
                moments.scores,
                lambda: at_means(moments.means),
                novelty=lambda z: novelty(moments, z),
                left_out=self.left_out,
            )
        }

    def held_features(self) -> tuple[Tensor, Tensor]:
        """Of the memory's images, or without a memory those that are kept."""
        if self.memory.capacity and len(self.memory):
            return super().held_features()
        return self.moments.kept.kept, self.moments.kept.kept_labels

    def settle(self) -> None:
        self.moments.settle(*self.held_features())

    def left_out(self) -> Tensor | None:
        """Novelty of what is held, as if it had never come."""
        z, y = self.held_features()
        return left_out(self.moments, z, y) if len(y) else None

    @property
    def temperature(self) -> float:
        return float(self.moments.choice[3])

    @torch.inference_mode()
    def fair_answers(self) -> tuple[Tensor, Tensor] | None:
        z, y = self.held_features()
        return (left_out_scores(self.moments, z, y), y) if len(y) else None
