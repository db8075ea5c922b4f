"""RanPAC: ridge regression on random features (McDonnell et al., NeurIPS 2023, arXiv 2307.02251).

    W = (G + lambda I)^-1 C,  G = sum_i h_i h_i',  C = sum_i h_i y_i'      (y_i one-hot)
    score(x) = W' h(x)

from sums alone: no gradient, no memory, one pass, any order of the classes.

| symbol | here               | meaning                                            |
|--------|--------------------|----------------------------------------------------|
| h      | model.net          | the encoder: `random` is the paper's random ReLU   |
| G      | moments.second     | second moment of the features less a fixed shift   |
| C      | moments.sums       | class sums, less the shift                         |
| lambda | moments.choice     | n0 tr(G) / (n d)                                   |

Differs from the reference code: no adapters are trained (its phase before the stream). lambda is
chosen by the exact leave-one-out squared error of samples over a grid, where the original splits a
task's samples. Class counts weigh, as there: a class with few samples has small scores.
2 000 features by default instead of 10 000 (`width` 10000 holds 400 MB).

Cost: no gradient; d^2 numbers, as `slda`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ocil.learners.anchor import at_means
from ocil.learners.fixed import plain
from ocil.learners.readouts import Readout
from ocil.learners.slda import Slda
from ocil.moments import ClassMoments
from ocil.moments.shrinkage import GRID, spectrum


class RidgeMoments(ClassMoments):
    """The same sums, read by ridge regression on one-hot targets."""

    def covariance(self) -> Tensor:
        """G / n (d, d), of the samples in the second moment."""
        return self.second.whole().div_(max(1, self.total - self.pending))

    def targets(self, part: slice) -> Tensor:
        """C (c, d) of some classes."""
        return self.sums[part] - self.counts[part, None] * self.shift.double()

    def bias(self, weight: Tensor, target: Tensor) -> Tensor:
        return weight.new_zeros(len(weight))

    def scores(self, z: Tensor) -> Tensor:
        return super().scores(z) / max(1, self.total)

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Squared error of each sample without it, (y_hat - g y) / (1 - g) - y, for each rho.

        g = h' (G + lambda I)^-1 h is the weight of the sample in its own prediction (PRESS,
        Allen 1974), lambda = n tr(G/n)/d rho / (1 - rho).
        """
        values, basis = spectrum(self.covariance())
        c = self.targets(slice(None)) / self.total
        x, c = (rows.to(basis) @ basis for rows in (z, c))  # (m, d), (C, d)
        one_hot = torch.zeros(len(z), len(c)).to(x).scatter_(1, y[:, None], 1.0)
        found = []
        for rho in GRID:
            inverse = 1 / (values + values.mean() * rho / (1 - rho))
            own = (x.square() * inverse).sum(1, keepdim=True) / self.total
            left_out = ((x * inverse) @ c.T - own * one_hot) / (1 - own)
            found.append((left_out - one_hot).square().sum(1).mean())
        return torch.stack(found)[:, None]


class Ranpac(Slda):
    method = "ranpac"
    title = "Ridge regression on random features"
    paper = "McDonnell et al., RanPAC: Random Projections and Pre-trained Models"
    year = 2023
    memory_policy = "none, or a reservoir that chooses the ridge"
    own_readout = "ridge"
    presets: ClassVar[dict[str, dict[str, Any]]] = {"default": {}}
    statistics = RidgeMoments

    def readouts(self) -> dict[str, Readout]:
        moments = self.moments

        def novelty(z: Tensor) -> Tensor:
            """Squared distance to the nearest target: |s|^2 + 1 - 2 max_c s_c."""
            said = moments.scores(z)
            return said.square().sum(1) + 1 - 2 * said.amax(1)

        return {"ridge": plain(moments.scores, lambda: at_means(moments.means), novelty=novelty)}
