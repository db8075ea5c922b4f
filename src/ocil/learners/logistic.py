"""Logistic regression on what the memory holds (Cox 1958), in the space of a fixed encoder.

    score_c(x) = w_c' u + b_c,   u = (h(x) - m) / s
    w, b = argmin  sum_i -log softmax_{y_i}(w u_i + b) + |w|^2 / (2 C)

What a person would use instead: keep some samples, and fit them when an answer is wanted. With
`net="identity"` h is the sample as it comes; with a memory as long as the stream it is offline
learning of everything, a ceiling for methods that see a sample once.

| symbol | here         | meaning                                                          |
|--------|--------------|------------------------------------------------------------------|
| h      | model.net    | the encoder, fixed after 300 samples                             |
| m, s   | cache        | mean and deviation of each feature of the memory (of images one  |
|        |              | deviation for all)                                               |
| w, b   | cache        | weights (classes, d) and biases, by scikit-learn                 |
| C      | STRENGTH     | 0.3; between what suits 500 samples and what suits all of them,  |
|        |              | by trials on held-out parts of digits, MNIST and clinc150        |

Differs from the textbook in the memory: a sample that is as even over the classes as the stream
allows. Each sample draws a number; when the memory is full, the class that has most gives up the
sample with the largest number (as Chrysakis and Moens, ICML 2020, without counts of the classes).
Cost: no gradient on the stream; a fit when an answer is asked for after new samples.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ocil.learners.fixed import FixedSettings, plain
from ocil.learners.knn import Knn
from ocil.learners.readouts import Readout
from ocil.memory import Memory
from ocil.settings import setting

STRENGTH = 0.3  # C: less draws the weights to zero
ROUNDS = 200  # of the solver, at most


@dataclass(frozen=True)
class LogisticSettings(FixedSettings):
    memory: int | None = setting(500, low=1, costs=False)
    """Samples the memory holds, which are fitted; as many as the stream has: offline learning."""


class EvenMemory(Memory):
    """A random sample, as even over the classes as the stream allows."""

    def reservoir(
        self, x: Tensor, y: Tensor, generator: torch.Generator, **columns: Tensor
    ) -> None:
        numbers = torch.rand(len(y), dtype=torch.float64, generator=generator).float()
        self.seen += len(y)
        for i, (label, number) in enumerate(zip(y.tolist(), numbers, strict=True)):
            if (slot := self._slot(label, number)) >= 0:
                self.write([slot], x[i : i + 1], y[i : i + 1], number=number[None])

    def _slot(self, label: int, number: Tensor) -> int:
        """Where a sample goes, -1 for nowhere."""
        if len(self) < self.capacity:
            return len(self)
        own = self.members[label] if label < len(self.members) else []
        most = max(self.members, key=len)
        if len(own) == len(most):
            most = own
        drawn = self.columns["number"][most]
        last = int(drawn.argmax())
        return -1 if most is own and number > drawn[last] else most[last]


class Logistic(Knn):
    method = "logistic"
    title = "Logistic regression on the memory"
    memory_policy = "even over the classes"
    own_readout = "linear"
    settings_type = LogisticSettings

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.memory = self.parts["memory"] = EvenMemory(self.settings.memory or 0, self.device)

    def readouts(self) -> dict[str, Readout]:
        def scores(z: Tensor) -> Tensor:
            if "weight" not in self.cache:
                self.cache |= fit(*self.held(), self.classes, columns=len(self.shape) == 1)
            found = self.cache
            u = (z.double() - found["mean"]) / found["scale"]
            return (u @ found["weight"].T + found["bias"]).float()

        def novelty(z: Tensor) -> Tensor:
            return -scores(z).log_softmax(1).amax(1)

        return {"linear": plain(scores, self.means, needs_memory=True, novelty=novelty)}


def fit(z: Tensor, y: Tensor, classes: int, columns: bool) -> dict[str, Tensor]:
    """Weights and biases for features z (m, d) of classes y (m,); no sample of a class: -inf.

    `columns`: each feature has its own deviation, else all have the same.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    z = z.double()
    mean, spread = z.mean(0), z.var(0, correction=0)
    scale = (spread if columns else spread.mean()).sqrt()
    scale = torch.where(scale > 1e-9 * (1 + mean.abs()), scale, 1.0)
    weight, bias = z.new_zeros(classes, z.shape[1]), z.new_full((classes,), -torch.inf)
    present = y.unique()
    bias[present] = 0.0
    if len(present) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # as near as the rounds allow
            model = LogisticRegression(C=STRENGTH, max_iter=ROUNDS)
            model.fit(((z - mean) / scale).cpu().numpy(), y.cpu().numpy())
        rows = present if len(present) > 2 else present[1:]  # of two classes, the second's
        weight[rows] = torch.from_numpy(model.coef_).to(z)
        bias[rows] = torch.from_numpy(model.intercept_).to(z)
    return {"mean": mean, "scale": scale, "weight": weight, "bias": bias}
