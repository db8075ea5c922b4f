"""RanPAC: ridge regression on random features of a fixed encoder (McDonnell et al., NeurIPS 2023).

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
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.learners.slda import Slda
from ocil.moments import ClassMoments
from ocil.shrinkage import GRID


class RidgeMoments(ClassMoments):
    """The same sums, read by ridge regression on one-hot targets."""

    def covariance(self) -> Tensor:
        """G / n (d, d), of the samples in the second moment."""
        return self.second.double() / max(1, self.total - self.pending)

    def targets(self) -> Tensor:
        """C / n (classes, d)."""
        sums = self.sums - self.counts[:, None] * self.shift.double()
        return sums / max(1, self.total)

    def bias(self, weight: Tensor) -> Tensor:
        return weight.new_zeros(len(weight))

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Squared error of each sample without it, (y_hat - g y) / (1 - g) - y, for each rho.

        g = h' (G + lambda I)^-1 h is the weight of the sample in its own prediction (PRESS,
        Allen 1974), lambda = n tr(G/n)/d rho / (1 - rho).
        """
        values, basis = torch.linalg.eigh(self.covariance())
        x, c = z @ basis, self.targets() @ basis  # (m, d), (C, d)
        one_hot = torch.zeros(len(z), len(c)).to(z).scatter_(1, y[:, None], 1.0)
        found = []
        for rho in GRID:
            inverse = 1 / (values.clamp(min=0) + values.mean() * rho / (1 - rho))
            own = (x.square() * inverse).sum(1, keepdim=True) / self.total
            left_out = ((x * inverse) @ c.T - own * one_hot) / (1 - own)
            found.append((left_out - one_hot).square().sum(1).mean())
        return torch.stack(found)


class Ranpac(Slda):
    method = "ranpac"
    title = "Ridge regression on random features"
    paper = "McDonnell et al., RanPAC: Random Projections and Pre-trained Models"
    year = 2023
    memory_policy = "none, or a reservoir that chooses the ridge"
    own_readout = "ridge"
    statistics = RidgeMoments
