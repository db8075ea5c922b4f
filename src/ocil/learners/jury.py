"""The jury: samples that are never trained on, by which a classifier judges itself.

Of every class each tenth sample is held out while the class has too few, a tenth of the memory in
all. Jurors do count in the exact statistics of an anchor, which scores them as if they had never
come (`ocil.moments.left_out`). They decide how much each word counts in the answer,

    answer(x) = sum_i w_i s_i(x),   s the scores (n, C) of anchor and net, or of one read-out alone

where w is the one with the least log-loss of the jurors, drawn to a start while they are few:

    sum_j -log(0.98 p_j + 0.02 / C) + 2 sum_i log2(w_i / start_i)^2,   p = softmax(answer)[y]

and they tell the accuracy, crosswise: each half of them by the weights that the other half chose.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ocil.memory.holdout import HeldOut
from ocil.stream import Batch

SHARE = 10  # one of so many: of the memory, and of the samples of a class
STRENGTH = 2.0  # nats against a factor of two from the start
FACTORS = tuple(2.0 ** (i / 2) for i in range(-12, 7))  # of the start that are tried
DOUBT = 0.02  # so that no juror decides alone
SWEEPS = 3  # over the words, one weight at a time
FEW = 10  # jurors from which they are asked
GROWTH = 1.25  # samples from one verdict to the next, as a factor


class Jury(HeldOut):
    """Its weights are those of the last verdict, at `judged` samples; none before."""

    def __init__(self, capacity: int, device: torch.device | str = "cpu") -> None:
        super().__init__(capacity, device)
        self.counts: list[int] = []  # samples of each class that came
        self.weights: list[float] = []
        self.judged = 0

    def take(self, batch: Batch, classes: int, generator: torch.Generator) -> Batch:
        """The batch without the samples that are held out from now on."""
        self.counts += [0] * (classes - len(self.counts))
        stay = []
        for i, label in enumerate(batch.y.tolist()):
            self.counts[label] += 1
            due = self.counts[label] % SHARE == 0
            if not due or not self.hold(batch.x[i], batch.y[i], classes, generator):
                stay.append(i)
        if len(stay) == len(batch.y):
            return batch
        return replace(batch, x=batch.x[stay], y=batch.y[stay])

    def count(self, other: Jury, ids: Sequence[int]) -> None:
        """Count the samples that another jury has seen, whose class c is ours ids[c]."""
        self.counts += [0] * (max(ids, default=-1) + 1 - len(self.counts))
        for c, n in enumerate(other.counts):
            self.counts[ids[c]] += n

    @property
    def due(self) -> bool:
        """Whether the weights are to be found anew: counts of samples decide."""
        return len(self) >= FEW and sum(self.counts) >= GROWTH * self.judged

    def judge(self, words: Sequence[Tensor], start: Sequence[float]) -> None:
        """Find the weights of words (m, C) of the jurors in their order."""
        self.weights = weigh(words, self.columns["y"][: len(self)], start)
        self.judged = sum(self.counts)

    def crosswise(self, words: Sequence[Tensor], start: Sequence[float]) -> Tensor:
        """Answers (m, C) for each half of the jurors by the weights of the other half."""
        y = self.columns["y"][: len(self)]
        half = torch.tensor(self.index_in_class, device=y.device) % 2
        found = torch.zeros_like(words[0], dtype=torch.float64)
        for side in (0, 1):
            here, there = half == side, half != side
            chosen = weigh([word[there] for word in words], y[there], start)
            found[here] = answer([word[here] for word in words], chosen)
        return found

    # ---------------------------------------------------------------- state

    def forget(self, label: int) -> None:
        super().forget(label)
        del self.counts[label : label + 1]

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        weights = torch.tensor(self.weights, dtype=torch.float64)
        own = {"counts": torch.tensor(self.counts, dtype=torch.int64), "weights": weights}
        return super().state_dict(samples) | own | {"judged": torch.tensor(self.judged)}

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        super().load_state_dict(state, classes)
        self.counts, self.weights = state["counts"].tolist(), state["weights"].tolist()
        self.judged = int(state["judged"])
        if len(self.counts) > classes or min(self.counts, default=0) < 0 or self.judged < 0:
            raise ValueError("the jury counts classes that do not exist")
        if len(self.weights) > 2 or not all(0 < w < math.inf for w in self.weights):
            raise ValueError(f"the jury has the weights {self.weights}")


def answer(words: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """sum_i w_i s_i (n, C) in float64."""
    return torch.stack([w * word.double() for w, word in zip(weights, words, strict=True)]).sum(0)


def weigh(words: Sequence[Tensor], y: Tensor, start: Sequence[float]) -> list[float]:
    """Weights of words (m, C) for samples of classes y (m,), one after the other over a grid."""
    chosen, index = list(start), y[:, None]

    def cost(weights: Sequence[float]) -> float:
        said = answer(words, weights).softmax(1).gather(1, index).nan_to_num(nan=0.0)
        loss = -((1 - DOUBT) * said + DOUBT / words[0].shape[1]).log().sum()
        away = (math.log2(w / s) ** 2 for w, s in zip(weights, start, strict=True))
        return float(loss) + STRENGTH * sum(away)

    for _ in range(SWEEPS if len(words) > 1 else 1):
        for i, begin in enumerate(start):
            tried = [[*chosen[:i], begin * f, *chosen[i + 1 :]] for f in FACTORS]
            chosen = min(tried, key=cost)
    return chosen


class Score(NamedTuple):
    """How many of its answers are right, as far as a classifier can tell by itself."""

    accuracy: float
    low: float  # of an interval that holds the true share in 19 of 20 cases
    high: float
    asked: int  # samples
    by_class: dict[Any, tuple[int, int]]  # right answers and samples asked, by class
    confused: dict[tuple[Any, Any], int]  # wrong answers by class and what was said, most first


def score(answers: Tensor, y: Tensor, counts: Sequence[int]) -> Score:
    """Of answers (m, C) for samples of classes y (m,), whose classes have had `counts` samples.

    accuracy = sum_c n_c a_c / sum_c n_c over the classes that were asked; Wilson's interval for as
    many samples as would be as sure if all counted alike.
    """
    right = answers.argmax(1) == y
    asked = torch.bincount(y, minlength=len(counts)).tolist()
    hits = torch.bincount(y[right], minlength=len(counts)).tolist()
    own = {c: (hits[c], asked[c]) for c in range(len(counts)) if asked[c]}
    whole = sum(counts[c] for c in own)
    share = {c: counts[c] / whole for c in own}
    accuracy = sum(share[c] * h / n for c, (h, n) in own.items())
    alike = 1 / sum(share[c] ** 2 / n for c, (_, n) in own.items())
    z = 1.96**2 / alike
    middle, half = accuracy + z / 2, math.sqrt(z * (accuracy * (1 - accuracy) + z / 4))
    low, high = ((middle + side * half) / (1 + z) for side in (-1, 1))
    wrong = Counter(zip(y[~right].tolist(), answers.argmax(1)[~right].tolist(), strict=True))
    return Score(accuracy, low, high, len(y), own, dict(wrong.most_common()))
