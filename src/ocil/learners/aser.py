"""ASER: adversarial Shapley value experience replay (Shim et al., AAAI 2021, arXiv 2009.00093).

ER whose memory is judged by Shapley values of K-nearest-neighbour voting in feature space
(`knn_shapley`): s(e, d) says how much the candidate d helps to name the point e. Once the
memory is full, every stream batch S goes through

    retrieve  draw candidates D and, disjoint from them, points C of the memory, class-balanced;
              replay the m of D with the largest mean_{e in C} s(e, d) - mean_{e in S} s(e, d):
              typical of their own class, in the way of the classes that arrive
    learn     cross-entropy on both batches together, as in ER
    update    draw points E, class-balanced, and candidates D' outside of them; items of S whose
              class holds a share below t ~ U(0, 1/classes) of the memory join E; of D' u S the
              |S| with the smallest sum_{e in E} s(e, d) are dropped

and before it is full it is ER.

| symbol | here                  | meaning                                               |
|--------|-----------------------|-------------------------------------------------------|
| K      | settings.neighbours   | neighbours that vote                                  |
| D, C   | settings.candidates   | size of each of the draws                             |
| n_smp  | settings.per_class    | their size per class, in the reference                |
| ASV_mu | score = "mean"        | the form that the published tables use                |
| ASV    | score = "extreme"     | max over C minus min over S                           |

Differs from the reference:

- The draws have a fixed size (what n_smp per class comes to with all classes), so that a step costs
  the same throughout; `per_class` lets D, C and E grow with the classes. A class with too few
  images passes its share on.
- A draw is at most half the memory, but D has at least as many as are replayed: with 100 images in
  memory 64 of 64 candidates are replayed, and the values decide from about 130 on.
- The threshold t uses the classes seen; how many are still to come is never known.
- Values are exact also with fewer candidates than K. The features of D are computed once, not
  twice, and the two passes whose gradients the reference throws away are left out.
- Optimiser, replay and augmentation are those of all methods; preset `reference` has its own. It
  has none for MNIST and Tiny-ImageNet: ours follow CIFAR-10 and CIFAR-100. On MNIST held-out images
  chose `update` reservoir: the values choose what is replayed, not what is kept.

Cost: 10 + 64 images forward and backward; with n images in a draw 2 n + 10 forward to retrieve and
as many to update, from raw images in eval mode; n log n to sort for each point.
"""

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.learners.learner import Report
from ocil.learners.replay import ReplayLearner
from ocil.memory import policies
from ocil.settings import Settings, setting
from ocil.stream import Batch


@dataclass(frozen=True)
class AserSettings(Settings):
    neighbours: int = setting(3, low=1, search=(1, 3, 5, 9))
    """Nearest neighbours that vote (K)."""
    candidates: int = setting(90, low=1)
    """Images in each draw from the memory."""
    per_class: int = 0
    """Images of each class in the class-balanced draws (D, C, E), in place of `candidates`; 0 keeps
    the fixed size."""
    score: Literal["mean", "extreme", "adversarial"] = "mean"
    """What is replayed: mean (ASER_mu), extreme (ASER), or adversarial to the stream alone."""
    update: Literal["shapley", "reservoir"] = "shapley"
    """Who leaves a full memory: those worth least, or whoever a reservoir picks."""


REFERENCE = {
    "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "replay": 10, "augment": "none",
    "ema": 0.0, "per_class": 9,
}  # fmt: skip


class Aser(ReplayLearner[AserSettings]):
    method = "aser"
    title = "Adversarial Shapley value replay"
    paper = (
        "Shim et al., Online Class-Incremental Continual Learning with Adversarial Shapley Value"
    )
    year = 2021
    memory_policy = "Shapley, the largest values"
    needs_memory = True
    settings_type = AserSettings
    presets = {  # noqa: RUF012
        "default": {},
        "default/digits": {"lr": 8e-3, "ema": 0.9},
        "default/mnist": {"lr": 2e-3, "update": "reservoir"},
        "default/cifar10": {"candidates": 90},
        "default/cifar100": {"candidates": 200},
        "default/tiny-imagenet": {"candidates": 200},
        "reference": REFERENCE,
        "reference/cifar100": {"per_class": 2, "candidates": 200},
        "reference/tiny-imagenet": {"per_class": 1, "candidates": 200},
    }

    def step(self, batch: Batch) -> Report:
        report = {}
        for _ in range(self.updates):
            x, y = self.with_replay(batch)
            loss = F.cross_entropy(self.logits(self.augmented(x)), y)
            report["loss"] = self.optimizer_step(loss)
        self.remember(batch)
        return report

    @property
    def drawn(self) -> int:
        """Images in a class-balanced draw: half the memory at most, as there are two of them."""
        wanted = self.settings.per_class * len(self.memory.filled) or self.settings.candidates
        return max(1, min(wanted, len(self.memory) // 2))

    def with_replay(self, batch: Batch) -> tuple[Tensor, Tensor]:
        if len(self.memory) < self.memory.capacity or not self.settings.replay:
            return super().with_replay(batch)
        old, x, y = self.adversaries(batch), batch.x.to(self.device), batch.y.to(self.device)
        return torch.cat([old["x"], x]), torch.cat([old["y"], y])

    def adversaries(self, batch: Batch) -> dict[str, Tensor]:
        """The entries to replay with this batch, best first."""
        draw, memory = self.generators["memory"], self.memory
        size = max(self.drawn, min(self.settings.replay, len(memory) - 1))
        both = memory.choose(size + self.drawn, draw, "balanced")
        slots, others = split_balanced(both, memory.labels, size, draw)
        candidates, own = memory.read(slots), memory.read(others)
        z, z_stream, z_own = self.judged(candidates["x"], batch.x, own["x"])
        stream = self.worth(z_stream, batch.y.to(self.device), z, candidates["y"])
        held = self.worth(z_own, own["y"], z, candidates["y"])
        score = adversarial_shapley(stream, held, self.settings.score)
        best = score.argsort(descending=True, stable=True)[: self.settings.replay]
        return {name: column[best] for name, column in candidates.items()}

    @torch.no_grad()
    def judged(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Features of raw images in eval mode, with the weights as they are, counted."""
        x = torch.cat([part.to(self.device) for part in parts])
        self.backbone_images += len(x)
        return self.encode(self.model, x).split([len(part) for part in parts])

    def worth(self, z: Tensor, y: Tensor, z_candidate: Tensor, y_candidate: Tensor) -> Tensor:
        """Shapley values (E, N) of N candidates for E points."""
        agrees = y[:, None] == y_candidate
        return knn_shapley(torch.cdist(z, z_candidate), agrees, self.settings.neighbours)

    def remember(self, batch: Batch) -> None:
        """Free slots first; what is left of the batch has to win its place."""
        if self.settings.update == "reservoir":
            super().remember(batch)
            return
        memory, n = self.memory, len(batch.y)
        free = list(range(len(memory), min(memory.capacity, len(memory) + n)))
        memory.seen += n
        memory.write(free, batch.x[: len(free)], batch.y[: len(free)])
        if len(free) < n:
            x, y = batch.x[len(free) :], batch.y[len(free) :]
            memory.write(self.contest(x, y), x, y)

    def contest(self, x: Tensor, y: Tensor) -> list[int]:
        """A slot for every image that is worth more than a candidate of the memory, -1 else."""
        draw, memory = self.generators["memory"], self.memory
        judges = memory.choose(self.drawn, draw, "balanced")
        rivals = sample_excluding(len(memory), judges, self.settings.candidates, draw)
        judge, rival = memory.read(judges), memory.read(rivals)
        z_judge, z_rival, z_new = self.judged(judge["x"], rival["x"], x)
        rare, y_new = self.rare(y.tolist()), y.to(self.device)
        value = self.worth(
            torch.cat([z_judge, z_new[rare]]), torch.cat([judge["y"], y_new[rare]]),
            torch.cat([z_rival, z_new]), torch.cat([rival["y"], y_new]),
        ).sum(0)  # fmt: skip
        # The memory keeps its lists on the host: the ranking has to be known there.
        return replacement_slots(value.argsort(descending=True, stable=True).tolist(), rivals)

    def rare(self, labels: list[int]) -> list[int]:
        """Items of a class with a share of the memory below t ~ U(0, 1 / classes seen)."""
        threshold = torch.rand((), generator=self.generators["method"]).item() / self.classes
        members, most = self.memory.members, threshold * len(self.memory)
        held = [len(members[c]) if c < len(members) else 0 for c in labels]
        return [i for i, count in enumerate(held) if count < most]


def knn_shapley(distance: Tensor, agrees: Tensor, neighbours: int) -> Tensor:
    """Exact Shapley value of each candidate for each evaluation point (Jia et al., VLDB 2019).

    A set S of candidates is worth the share of the K nearest of them that have the label of the
    evaluation point, v(S) = 1/K sum_{k <= min(K, |S|)} I_k. With candidates 1..N in order of
    distance the value of the Shapley sum over all subsets is

        s_N = I_N / max(N, K),    s_i = s_{i+1} + (I_i - I_{i+1}) / K * min(K, i) / i,

    a sum from the far end, so that a row costs one sort. The values of a row add up to the worth
    of all candidates together. The code of ASER takes 1/N also where N < K, which is not exact.

    distance (E, N), agrees (E, N) bool -> (E, N) float in the order given; ties keep that order.

    >>> distance = torch.tensor([[3.0, 1.0, 2.0]])
    >>> agrees = torch.tensor([[False, True, False]])
    >>> knn_shapley(distance, agrees, neighbours=1).tolist()
    [[0.0, 1.0, 0.0]]
    """
    count = distance.shape[1]
    order = distance.argsort(dim=1, stable=True)
    hit = agrees.gather(1, order).to(distance.dtype)  # I_i
    rank = torch.arange(1, count + 1, device=distance.device, dtype=distance.dtype)
    factor = rank.clamp(max=neighbours) / (rank * neighbours)
    step = hit.clone()
    step[:, :-1] -= hit[:, 1:]  # I_i - I_{i+1}, and I_N at the end
    value = (step * factor).flip(1).cumsum(1).flip(1)
    return torch.empty_like(value).scatter_(1, order, value)


def adversarial_shapley(stream: Tensor, memory: Tensor, form: str = "mean") -> Tensor:
    """High for candidates that stand for their class in memory and disturb the stream (ASER).

    mean: mean_e Q[e, d] - mean_e A[e, d], extreme: max_e Q[e, d] - min_e A[e, d], adversarial:
    -sum_e A[e, d], with the candidates' values A for the stream's points and Q for other points of
    the memory. Where there are no such others, Q counts as 0.

    stream (B, N), memory (E, N) -> (N,)
    """
    if form == "adversarial":
        return -stream.sum(0)
    if not len(memory):
        memory = torch.zeros_like(stream[:1])
    if form == "extreme":
        return memory.amax(0) - stream.amin(0)
    return memory.mean(0) - stream.mean(0)


def sample_excluding(
    count: int, taken: Iterable[int], wanted: int, draw: torch.Generator
) -> list[int]:
    """`wanted` different slots of 0..count-1 that are not taken, every set of them as likely.

    >>> sample_excluding(6, [1, 4, 0], 9, torch.Generator())
    [2, 3, 5]
    """
    # The r-th free slot is r plus the taken ones before it; those are the ones whose own number
    # of free slots before them is at most r.
    free_before = [slot - rank for rank, slot in enumerate(sorted(taken))]
    picks = policies.uniform(count - len(free_before), wanted, draw)
    return [r + bisect.bisect_right(free_before, r) for r in picks]


def split_balanced(
    slots: Sequence[int], labels: Sequence[int], first: int, draw: torch.Generator
) -> tuple[list[int], list[int]]:
    """Divide a class-balanced draw at random into `first` slots, balanced themselves, and the rest.

    labels[slot] is the class. In effect two balanced draws, the second from what the first left.
    """
    groups: dict[int, list[int]] = {}
    for slot in slots:
        groups.setdefault(labels[slot], []).append(slot)
    chosen = policies.balanced(list(groups.values()), first, draw)
    taken = set(chosen)
    return chosen, [slot for slot in slots if slot not in taken]


def replacement_slots(order: Sequence[int], rivals: Sequence[int]) -> list[int]:
    """Slots for new images that outrank rivals of the memory, -1 for one that does not.

    order ranks the numbers 0..r-1 of the r rivals (memory slots) and r, r+1, ... of the new images,
    best first. The best r stay: a new image among them takes the slot of a rival that is not.

    >>> replacement_slots([3, 0, 2, 1, 4], rivals=[70, 50, 90])  # image 3 is among the best three
    [50, -1]
    """
    r = len(rivals)
    entering = [i - r for i in order[:r] if i >= r]
    leaving = [rivals[i] for i in order[r:] if i < r]
    slots = [-1] * (len(order) - r)
    for item, slot in zip(entering, leaving, strict=True):
        slots[item] = slot
    return slots
