"""OnPro: online prototype learning (Wei et al., ICCV 2023, arXiv 2308.00301).

OCM's InfoNCE over all turns of an image and its head on replayed images, without the snapshot but
with two uses of online prototypes, the class means of the projections of the batch at hand:

    OPE   online prototype equilibrium: prototypes of a class from two views agree, those of
          different classes keep apart; on the stream (L_new) and on the replayed images (L_seen)
    APF   adaptive prototypical feedback: of n_1 = alpha m replayed images, pairs of classes with
          close prototypes are mixed, softmax(1 / distance) saying how often; the other n_0 are
          mixed at random

For a stream batch (x, y) and a replay batch (b, y_b) of m images,

    first task   L = CE(W h(Aug(x)), y) + L_n(x) + L_new(x) + L_seen(b)
    later        L = CE(W h(Aug(q)), y_q) + L_n(x) + L_uni(q) + L_new(x) + L_seen(b)

with (q, y_q) = APF(b, y_b, prototypes of the step before), or b itself in a task's first step.

| symbol    | here                                  | meaning                                     |
|-----------|---------------------------------------|---------------------------------------------|
| h, W      | model.net, .head                      | feature extractor, linear head              |
| g, z      | model.projection                      | linear projection of unit length            |
| lambda_s  | settings.similarity, similarity_first | factor of the similarities (c in OCM)       |
| tau, tau_p| settings.tau, .prototype_tau          | temperatures of InfoNCE and of OPE          |
| alpha     | settings.guided                       | share of replay that prototypes choose      |
| p         | settings.mixup                        | chance to mix (see `ocil.memory.feedback`)  |
| L_n, L_uni| holistic.paired_infonce, .infonce     | InfoNCE of stream and memory                |

Differs from the reference:

- The head covers the classes seen. Aug, `reference` on colour images, square images, the averaged
  weights and streams without task borders: as in `ocm`. AdamW with its usual betas instead of Adam
  with L2 and beta2 = 0.99.
- A mixed image of two classes is a class of its own in L_uni (there by a mean of label numbers,
  which can hit that of a third class).
- A memory smaller than the replay batch works, and with fewer than two prototypes all images are
  mixed at random; the authors' code stops there. A class that has left the memory since the step
  before is replaced by that of a random image.
- It has no settings for grey images: ours are those of CIFAR-10 with OCM's factor of similarity.

Cost: 320 + 10 + 128 images forward and backward in the first task, later 320 + 2048 + 64 + 128;
the prototypes of one replay batch are held.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import losses
from ocil.learners import holistic
from ocil.learners.learner import Report
from ocil.learners.parts import Values
from ocil.learners.presets import on_colour
from ocil.learners.replay import as_float
from ocil.memory import feedback
from ocil.settings import setting


@dataclass(frozen=True)
class OnproSettings(holistic.HolisticSettings):
    prototype_tau: float = setting(0.5, above=0, search=(0.1, 1.0))
    """Temperature of the prototypes' equilibrium."""
    guided: float = setting(0.1, high=1)
    """Share of the replayed images that are chosen by prototypes (alpha)."""
    mixup: float = setting(0.2, high=1)
    """Chance to mix (p): of the batch and again of each image, and of each guided pair."""


class Mixed(NamedTuple):
    """Images x (m, ...) in [0, 1] that are (1 - share) of class `first` and share of `second`."""

    x: Tensor
    first: Tensor
    second: Tensor
    share: Tensor

    def classes(self, known: int) -> Tensor:
        """(m,) the class of each image; a mix of two classes is a new one beyond those known."""
        own = known + torch.arange(len(self.x), device=self.x.device)
        return torch.where((self.share == 0) | (self.first == self.second), self.first, own)


# The reference chooses by the number of classes; it has no settings for grey images.
_TEN = {"similarity": 0.5, "guided": 0.25, "mixup": 0.6}
_GREY = _TEN | {"similarity_first": 0.5}  # the factor of OCM
_DATA: dict[str, dict[str, Any]] = {
    "digits": _GREY,
    "mnist": _GREY,
    "fashion-mnist": _GREY,
    "cifar10": _TEN,
    "cifar100": {},
    "tiny-imagenet": {"net": "resnet18-global"},
}


class Past(Values):
    """Whether a task is over, and the prototypes (k, p) of the step before with their classes."""

    saved: ClassVar[tuple[str, ...]] = ("finished", "prototypes", "prototype_classes")

    def __init__(self, dimension: int, device: torch.device) -> None:
        self.finished, self.dimension, self.device = False, dimension, device
        self.forget_prototypes()

    def forget_prototypes(self) -> None:
        self.prototypes = torch.empty(0, self.dimension, device=self.device)
        self.prototype_classes = torch.empty(0, dtype=torch.int64, device=self.device)

    def forget(self, label: int) -> None:
        others = self.prototype_classes != label
        self.prototypes, left = self.prototypes[others], self.prototype_classes[others]
        self.prototype_classes = left - (left > label).long()

    def check(self, classes: int) -> None:
        z, y = self.prototypes, self.prototype_classes
        if z.shape != (len(y), self.dimension):
            raise ValueError("there is not one prototype for each of its classes")
        if len(y) and not 0 <= y.min() <= y.max() < classes:
            raise ValueError("there are prototypes of classes that do not exist")


class Onpro(holistic.HolisticLearner[OnproSettings]):
    method = "onpro"
    title = "Online prototypes"
    paper = "Wei et al., Online Prototype Learning for Online Continual Learning"
    year = 2023
    needs_tasks = True
    needs_memory = True
    settings_type = OnproSettings
    presets = {  # noqa: RUF012
        "default": {},
        "reference": {"ema": 0.0, "lr": 5e-4},
        **{f"default/{data}": own for data, own in _DATA.items()},
        "default/digits": _TEN | {"lr": 8e-3, "ema": 0.9},
        "default/mnist": _GREY | {"lr": 2e-3, "readout": "head"},
        **{f"reference/{data}": own for data, own in _DATA.items()},
        **on_colour("reference", holistic.COLOUR, _DATA),
    }

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.past = self.parts[""] = Past(self.model.projection_size, self.device)

    def loss_terms(self, x: Tensor, y: Tensor) -> Report:
        old = self.replayed()
        mixed = self.feedback(**old) if old and self.past.finished else None
        seen = {"seen": self.seen(**old)} if old else {}
        turned = [
            holistic.turned_pairs(v, self.augmented) for v in ([x, mixed.x] if mixed else [x])
        ]
        z, f = self.embed(torch.cat([v.flatten(0, 2) for v in turned]))
        cut, n = 2 * holistic.TURNS * len(x), len(x)
        c = self.settings.similarity if self.past.finished else self.settings.similarity_first
        parts = {
            "stream": holistic.paired_infonce(self.compare(z[:cut], f[:cut], c), y),
            "new": self.equilibrium(z[: 2 * n], y),  # the first turn is none
        } | seen
        if mixed is None:
            entropy = F.cross_entropy(self.logits(self.augmented(x)), y)
        else:
            y_q = mixed.classes(self.classes).repeat(2)
            parts["memory"] = holistic.infonce(self.compare(z[cut:], f[cut:], c), y_q)
            logits = self.logits(self.augmented(mixed.x))
            entropy = mixed_cross_entropy(logits, mixed.first, mixed.second, mixed.share)
        return parts | {"entropy": entropy}

    def replayed(self) -> dict[str, Tensor]:
        """Raw images x and classes y of the replay batch; nothing while there are none."""
        wanted = self.settings.replay
        if self.past.finished:
            wanted = min(wanted, self.settings.replay_per_class * self.classes)
        if not wanted or not len(self.memory):
            return {}
        return self.memory.draw(wanted, self.generators["memory"], self.settings.retrieval)

    def seen(self, x: Tensor, y: Tensor) -> Tensor:
        """L_seen of the replay batch, whose prototypes are kept for the next feedback."""
        x = as_float(x)
        z, _ = self.embed(torch.cat([x, self.augmented(x)]))
        self.past.prototypes = batch_prototypes(z.detach().unflatten(0, (2, -1)).mean(0), y)
        self.past.prototype_classes = y
        return self.equilibrium(z, y)

    def feedback(self, x: Tensor, y: Tensor) -> Mixed:
        """APF of the replay batch: as many images, some of them mixed."""
        x, m, s, draw = as_float(x), len(y), self.settings, self.generators["method"]
        if not len(self.past.prototypes):
            return Mixed(x, y, y, x.new_zeros(m))
        known = self.past.prototype_classes.cpu()  # pairs of classes are chosen on the CPU
        kept = losses.first_of_each(known).nonzero()[:, 0]
        kept = kept[known[kept].argsort()]  # of a pair the class that came earlier is the first
        wanted = m - int((1 - s.guided) * m)
        pairs = feedback.close_pairs(self.past.prototypes.cpu()[kept], wanted, draw)
        shares = feedback.pair_shares(pairs, s.mixup, draw)
        asked = known[kept][pairs].T.flatten().tolist()  # first classes, then second ones
        slots = feedback.members_of(asked, self.memory.members, self.memory.labels, draw)
        guided, k = self.memory.read(slots), len(pairs)
        chosen = torch.randperm(m, generator=draw)[: m - k]
        partner, random_shares = feedback.random_partners(m - k, s.mixup, draw)
        first, second = chosen.to(self.device), chosen[partner].to(self.device)
        share = torch.cat([random_shares, shares]).to(self.device)
        held = as_float(guided["x"])
        one, two = torch.cat([x[first], held[:k]]), torch.cat([x[second], held[k:]])
        mixed = torch.lerp(one, two, share[:, None, None, None])
        a, b = torch.cat([y[first], guided["y"][:k]]), torch.cat([y[second], guided["y"][k:]])
        return Mixed(mixed, a, b, share)

    def equilibrium(self, z: Tensor, y: Tensor) -> Tensor:
        """OPE of z (2n, p), the second views after the first."""
        first, second = z.chunk(2)
        return prototype_equilibrium(first, second, y, self.settings.prototype_tau)

    def end_task(self, task: int, images: Tensor, labels: Tensor) -> None:
        self.past.finished = True
        self.past.forget_prototypes()


def batch_prototypes(z: Tensor, y: Tensor) -> Tensor:
    """Row i is the mean of all z_j with y_j = y_i: z (n, d), y (n,) -> (n, d).

    >>> batch_prototypes(torch.tensor([[1.0], [5.0], [3.0]]), torch.tensor([0, 1, 0])).tolist()
    [[2.0], [5.0], [2.0]]
    """
    same = (y[:, None] == y).to(z.dtype)
    return (same / same.sum(1, keepdim=True)) @ z


def prototype_equilibrium(first: Tensor, second: Tensor, y: Tensor, tau: float) -> Tensor:
    """Prototypes of a class from two views together, those of different classes apart (OPE).

    With the class means of each view at unit length, 2 K of them for K classes in the batch, and
    a+ the mean of the class of a in the other view,

        L = -1/(2K) sum_a log( exp(a.a+ / tau) / sum_{b != a} exp(a.b / tau) ),

    which is 0 for K = 1. Every point gets a gradient. The shapes depend on n alone: a class with
    several points has as many equal rows, of which the first counts.

    first, second (n, d) projections of two views of the same images, y (n,) -> 0-d.
    """
    n = len(y)
    a = F.normalize(torch.cat([batch_prototypes(z, y) for z in (first, second)]), dim=1)
    counts = losses.first_of_each(y).repeat(2)  # (2n,)
    itself = torch.eye(2 * n, dtype=torch.bool, device=a.device)
    each = losses.contrast(a @ a.T / tau, itself.roll(n, 1), counts & ~itself)  # (2n,)
    return each.masked_fill(~counts, 0.0).sum() / counts.sum()


def mixed_cross_entropy(logits: Tensor, first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """mean_i (1 - l_i) CE(logits_i, a_i) + l_i CE(logits_i, b_i) (Zhang et al. 2018).

    logits (n, C), labels a = first (n,) and b = second (n,), l = share (n,) of the second -> 0-d.
    """
    own = F.cross_entropy(logits, first, reduction="none")
    other = F.cross_entropy(logits, second, reduction="none")
    return torch.lerp(own, other, share).mean()
