"""GSA: gradient self-adaptation (Guo, Liu and Zhao, CVPR 2023, arXiv 2305.14657).

Under replay the logit of a new class is pushed up more than down and that of an old class down more
than up, which bends the borders between tasks. For a stream batch X of the task with classes T

    X_new   X and up to 22 images of T from the memory
    X_mix   round-down 64 (1 - r) images of older classes from the memory and the first 64 r of
            X_new, r = |T| / classes seen
    V(X)    every image augmented, and mirrored: two views

    L = 2 / |V(X_mix)| sum_i w_{y_i} CE(o_i, y_i; all classes seen)
          + 1 / |V(X_new)| sum_i CE(o_i, y_i; T)

with CE(o, y; A) the cross-entropy among the classes A, and for each class, over the run so far,

    w_c = 2 / (1 + exp(1 - R_c)),   R_c = sum_{i: y_i = c} (1 - p_ic) / sum_{i: y_i != c} p_ic,

p the softmax on X_mix; w = 1 for the first 5 batches of a task. The memory is a reservoir.

| symbol   | here                              | meaning                                      |
|----------|-----------------------------------|----------------------------------------------|
| T        | classes from balance.older on     | classes first seen in this task              |
| 22, 64   | settings.current, settings.replay | images of T from the memory, size of X_mix   |
| 2        | settings.mix                      | weight of the mix                            |
| 5        | settings.warmup                   | batches of a task without weights            |
| R        | balance.masses[0] / masses[1]     | accumulated gradient of each logit, up, down |

Differs from the reference code:

- The head is trained throughout, as in published re-runs; there it is replaced at every task and
  forgotten by the optimiser. Passes without a loss are left out.
- The paper's own formulas (exp(-R) for exp(1 - R), and re-weighted negatives) are not in its code,
  which we follow: its weight is 1 in balance.
- Old and new are told apart by class; T are the classes of the task that have appeared, and a class
  of an older task that comes back competes in the second term too. The first batch has a mix too.
- AdamW and one augmentation for both views, as in published re-runs (the authors: Adam with L2 and
  beta2 = 0.99, each view augmented for itself); a digit is not mirrored. The averaged weights are
  read. Preset `reference` is such a re-run: live weights, full width, the weaker augmentation of
  the original (`moderate`), images from 0 to 1. On MNIST held-out images chose 10 for the 22.

Cost: 2 (10 + 22) images and up to 2 x 64 for the mix, forward and backward in two passes with their
own batch-norm statistics; 2 x 64 in the first task.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import losses
from ocil.learners.learner import Report
from ocil.learners.parts import Values
from ocil.learners.presets import on_colour
from ocil.learners.replay import ReplayLearner
from ocil.memory import exemplars, policies
from ocil.rows import without
from ocil.settings import Settings, setting
from ocil.stream import Batch


@dataclass(frozen=True)
class GsaSettings(Settings):
    current: int = 22
    """Images of the task's own classes drawn from the memory."""
    mix: float = setting(2.0, search=(0.5, 8.0))
    """Weight of the loss on the mix of old and new."""
    warmup: int = 5
    """Batches at the start of a task during which all classes weigh the same."""
    mirror: bool = True
    """Second view: the first one mirrored, or another augmentation of the image."""


class Balance(Values):
    """The accumulated gradients, and where in a task the stream is."""

    saved: ClassVar[tuple[str, ...]] = ("counts", "masses")

    def __init__(self, device: torch.device) -> None:
        self.counts = [-1, 0, 0]  # task, classes first seen before it, its batches so far
        self.masses = torch.zeros(2, 0, device=device)  # (2, C): up, down

    @property
    def older(self) -> int:
        return self.counts[1]

    @property
    def batches(self) -> int:
        return self.counts[2]

    def begin_batch(self, task: int, known: int) -> None:
        same = task == self.counts[0]
        self.counts = [task, self.older if same else known, self.batches + 1 if same else 1]

    def forget(self, label: int) -> None:
        self.masses = without(self.masses, label, 1)
        self.counts[1] -= label < self.older

    def check(self, classes: int) -> None:
        if self.masses.shape != (2, classes) or not 0 <= self.older <= classes:
            raise ValueError(f"the accumulated gradients are not those of {classes} classes")


class Gsa(ReplayLearner[GsaSettings]):
    method = "gsa"
    title = "Gradient self-adaptation"
    paper = "Guo et al., Dealing with Cross-Task Class Discrimination in Online Continual Learning"
    year = 2023
    needs_tasks = True
    needs_memory = True
    settings_type = GsaSettings
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        # a mirrored digit is another sign, a mirrored shoe is a shoe
        "default/digits": {"mirror": False, "lr": 4e-3, "ema": 0.9},
        "default/mnist": {"mirror": False, "lr": 2e-3, "current": 10},
        "default/fashion-mnist": {"lr": 1e-3},
        "reference": {"ema": 0.0, "lr": 5e-4},
        **on_colour("reference", {"net": "resnet18-global", "width": 64, "augment": "moderate"}),
    }

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.balance = self.parts["gsa"] = Balance(self.device)

    def grow(self, classes: int) -> None:
        super().grow(classes)
        self.balance.masses = F.pad(self.balance.masses, (0, classes - self.classes))

    def step(self, batch: Batch) -> Report:
        self.balance.begin_batch(0 if batch.task is None else batch.task, self.known)
        report = {}
        for _ in range(self.updates):
            report["loss"] = self.optimizer_step(self.loss(*self.choose(batch)))
        self.remember(batch)
        return report

    def choose(self, batch: Batch) -> tuple[Tensor, ...]:
        """Raw images and classes of X_new and of X_mix; the mix ends with the older classes."""
        members, draw = self.memory.members, self.generators["memory"]
        size, seen = self.settings.replay, self.classes
        recent = range(self.balance.older, seen)
        slots = policies.of_classes(members, recent, self.settings.current, draw)
        slots = exemplars.shuffled(slots, draw)  # the mix takes the first of them
        x, y = self.memory.joined(batch.x, batch.y, slots)
        before = self.balance.older
        old = policies.of_classes(members, range(before), size * before // seen, draw)
        first = size * len(recent) // seen or int(not old)
        return x, y, *self.memory.joined(x[:first], y[:first], old)

    def views(self, x: Tensor) -> Tensor:
        """(n, ...) raw -> (2n, ...): all first views, then all second ones."""
        first = self.augmented(x)
        mirrored = self.settings.mirror and x.dim() == 4
        return torch.cat([first, first.flip(3) if mirrored else self.augmented(x)])

    def loss(self, x: Tensor, y: Tensor, mix_x: Tensor, mix_y: Tensor) -> Tensor:
        """2 L_mix + L_new, each on its own pass; accumulates the gradient of each logit."""
        y, mix_y = y.repeat(2), mix_y.repeat(2)
        # A class of an older task that comes back has to be among those that compete.
        among = losses.present(y, self.classes)
        among[self.balance.older :] = True
        new = losses.restricted_cross_entropy(self.logits(self.views(x)), y, among)
        logits = self.logits(self.views(mix_x))
        self.balance.masses += torch.stack(gradient_masses(logits, mix_y))
        weights = adaptive_weights(*self.balance.masses)
        if self.balance.batches <= self.settings.warmup:
            weights = torch.ones_like(weights)
        return self.settings.mix * weighted_cross_entropy(logits, mix_y, weights) + new


def gradient_masses(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """What cross-entropy does to each logit in one batch: up by own samples, down by the others.

    With p = softmax(logits), the gradient of sum_i -log p_{i,y_i} by the logit o_ic is p_ic - 1 for
    c = y_i and p_ic otherwise, so that
    positive_c = sum_{i: y_i = c} (1 - p_ic),   negative_c = sum_{i: y_i != c} p_ic.

    logits (n, C), y (n,) -> two (C,), without gradient.
    """
    p = logits.detach().softmax(1)
    own = F.one_hot(y, p.shape[1]).to(p.dtype)
    return ((1 - p) * own).sum(0), (p * (1 - own)).sum(0)


def adaptive_weights(positive: Tensor, negative: Tensor) -> Tensor:
    """w = 2 / (1 + exp(1 - R)), R = positive / negative (C,): 1 in balance, from 0.54 up to 2.

    A class that has received neither counts as balanced.

    >>> adaptive_weights(torch.tensor([0.0, 1.0, 9.0]), torch.tensor([0.0, 1.0, 0.0])).tolist()
    [1.0, 1.0, 2.0]
    """
    ratio = (positive + 1e-8) / (negative + 1e-8)
    return 2 * torch.sigmoid(ratio - 1)


def weighted_cross_entropy(logits: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """1/n sum_i w_{y_i} CE(o_i, y_i), w a constant; divided by n, not by the sum of the weights.

    logits (n, C), y (n,), weights (C,) -> 0-d.
    """
    return (weights.detach()[y] * F.cross_entropy(logits, y, reduction="none")).mean()
