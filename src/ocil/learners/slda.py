"""SLDA: streaming linear discriminant analysis (Hayes and Kanan 2020) on a fixed encoder.

One exact mean a class and one covariance shared by all, from counts and sums alone:

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
that are kept.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ocil.learners.fixed import FixedLearner, FixedSettings, at_means, plain
from ocil.learners.readouts import Readout
from ocil.moments import ClassMoments


class Slda(FixedLearner[FixedSettings]):
    method = "slda"
    title = "Streaming linear discriminant analysis"
    paper = "Hayes and Kanan, Lifelong Machine Learning with Deep Streaming LDA"
    year = 2020
    memory_policy = "none, or a reservoir that chooses the shrinkage"
    own_readout = "linear"
    statistics = ClassMoments

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.moments = self.statistics(self.dim, self.device, keeps=not self.memory.capacity)
        self.parts["moments"] = self.moments
        self.readout = self.choose_readout()

    def restart(self) -> None:
        self.moments.reset()

    def count(self, z: Tensor, y: Tensor) -> None:
        self.moments.add(z, y)
        if len(self.memory) and self.moments.due:
            self.moments.choose(*self.held_features())

    def readouts(self) -> dict[str, Readout]:
        moments = self.moments
        return {self.own_readout: plain(moments.scores, lambda: at_means(moments.means))}
