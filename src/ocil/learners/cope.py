"""CoPE: continual prototype evolution (De Lange and Tuytelaars, ICCV 2021, arXiv 2009.00919).

Instead of a classifier, every class has a prototype that slowly follows its embedded images. For a
stream batch X and a replayed batch M, each image of which is of a random class,

    z = (V h(aug(x)) + v) / |V h(aug(x)) + v|            embedding, unit length
    L = pseudo-prototypical proxy loss of X u M          `pseudo_prototypical_proxy`
    p_c <- m p_c + (1 - m) mean of the z of class c      after the step, z from before it

and c(x) = argmax_c p_c.z. A prototype starts in a random direction of the positive orthant and is
not brought back to unit length: a short one stands for a scattered class. The memory holds every
class in equal parts. No task identity; while one class is known, only its prototype moves.

| symbol   | here                       | meaning                                          |
|----------|----------------------------|--------------------------------------------------|
| h        | model.net                  | feature extractor                                |
| V, v     | model.project              | linear layer to d dimensions                     |
| d        | settings.dimension         | size of the embedding                            |
| p_c      | evolution.prototypes       | (C, d)                                           |
| T        | settings.tau               | temperature                                      |
| m        | settings.inertia           | how slowly prototypes move                       |
| n_iter   | settings.updates           | steps per batch, each with its own replay        |
| B_m      | settings.replay            | images replayed                                  |

Differs from the reference code:

- 64 images are replayed instead of 10. The loss counts pairs that repel each other but divides by
  points: `repel` = 20/74 keeps the balance it had with 10 + 10.
- AdamW and augmentation as in all methods, and one step a batch for CIFAR-100 too; preset
  `reference` has SGD, no augmentation, its sizes and five steps. Tiny-ImageNet, which it does not
  have, takes the settings of CIFAR-100.
- With ten classes the replay is drawn evenly over them. With more classes than images an even draw
  would have no two of a class, and only prototypes would attract.
- The MLP starts from torch's weights; Xavier's, without bias, in `reference` (hidden layers alone).
- A class gives slots up when another needs them and not before; the first batch moves the
  prototypes once, not twice; the loss is computed from logarithms, without clamps.
- The averaged weights are read with the same prototypes.

Cost: 10 + 64 images forward and backward, as ER, and (10 + 64)^2 similarities.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.learners.learner import Report
from ocil.learners.model import Model, Projected
from ocil.learners.parts import Values
from ocil.learners.readouts import Centroids, Features, Readout
from ocil.learners.replay import ReplayLearner
from ocil.memory import Memory
from ocil.settings import Settings, setting
from ocil.stream import Batch


@dataclass(frozen=True)
class CopeSettings(Settings):
    retrieval: Literal["uniform", "balanced", "classes"] = "balanced"
    """How replay images are drawn, without replacement: from all, evenly over classes, or each of a
    random class."""
    dimension: int = setting(256, low=1)
    """Size of the embedding."""
    tau: float = setting(0.1, above=0, search=(0.02, 0.5))
    """Temperature of the loss."""
    inertia: float = setting(0.99, search=(0.9, 0.97, 0.99, 0.997))
    """Share of a prototype that stays when it moves."""
    repel: float = 0.27
    """Weight of the repelling pairs; 1 is the reference, made for 20 images a step."""


_TEN = {"retrieval": "balanced"}
_MANY = {"tau": 0.05, "inertia": 0.9}  # the original's for CIFAR-100
REFERENCE = {
    "retrieval": "classes", "augment": "none", "replay": 10, "repel": 1.0, "optimizer": "sgd",
    "lr": 0.005, "weight_decay": 0.0, "ema": 0.0,
}  # fmt: skip


class Evolution(Values):
    """The prototypes (C, d), and how many images of each class were offered to the memory."""

    saved: ClassVar[tuple[str, ...]] = ("prototypes", "met")
    by_class: ClassVar[tuple[str, ...]] = ("prototypes", "met")

    def __init__(self, dimension: int, device: torch.device) -> None:
        self.prototypes, self.met = torch.zeros(0, dimension, device=device), list[int]()

    @property
    def nbytes(self) -> int:
        return super().nbytes + 8 * len(self.met)

    def add(self, count: int, generator: torch.Generator) -> None:
        """p_c = u / |u|, u ~ U(0, 1)^d, for `count` new classes."""
        u = torch.rand(count, self.prototypes.shape[1], generator=generator)
        fresh = F.normalize(u, dim=1).to(self.prototypes.device)
        self.prototypes = torch.cat([self.prototypes, fresh])
        self.met += [0] * count

    def move(self, z: Tensor, y: Tensor, inertia: float) -> None:
        """p_c <- m p_c + (1 - m) mean of z (n, d) of class c, for the classes in y (n,)."""
        p = self.prototypes
        sums = torch.zeros_like(p).index_add_(0, y, z)
        counts = torch.bincount(y, minlength=len(p))[:, None]  # (C, 1)
        target = torch.where(counts > 0, sums / counts.clamp(min=1), p)
        self.prototypes = torch.lerp(target, p, inertia)

    def check(self, classes: int) -> None:
        if len(self.prototypes) != classes or len(self.met) != classes:
            raise ValueError(f"there is not one prototype for each of {classes} classes")


class Cope(ReplayLearner[CopeSettings]):
    method = "cope"
    title = "Continual prototype evolution"
    paper = "De Lange and Tuytelaars, Continual Prototype Evolution"
    year = 2021
    needs_memory = True
    memory_policy = "equal shares, a reservoir a class"
    own_readout = "prototype"
    settings_type = CopeSettings
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        # With many classes an even draw has one image of each, and none has a fellow to be near to.
        "default": {"retrieval": "classes"},
        "default/digits": _TEN | {"dimension": 100, "lr": 1e-3, "inertia": 0.9, "ema": 0.9},
        "default/mnist": _TEN | {"dimension": 100, "lr": 5e-4},
        "default/fashion-mnist": _TEN | {"dimension": 100},
        "default/cifar10": _TEN,
        "default/cifar100": _MANY,
        "default/tiny-imagenet": _MANY,
        "default/tiny-imagenet-20": _MANY,
        "reference": REFERENCE,
        "reference/mnist": {"dimension": 100, "lr": 0.01, "memory": 2000, "init": "xavier"},
        "reference/cifar10": {"memory": 1000},
        "reference/cifar100": _MANY | {"updates": 5, "memory": 5000, "classes_per_task": 5},
        "reference/tiny-imagenet": _MANY | {"updates": 5},
    }

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.evolution = self.parts["cope"] = Evolution(self.settings.dimension, self.device)

    def build_model(self, net: torch.nn.Module) -> Model:
        return Projected(net, self.settings.dimension, self.generators["init"], layers=1)

    def grow(self, classes: int) -> None:
        super().grow(classes)
        self.evolution.add(classes - self.classes, self.generators["init"])

    def step(self, batch: Batch) -> Report:
        report, embedded, classes = {}, [], []
        for step in range(self.updates):
            x, y = self.with_replay(batch)
            z = self.logits(self.augmented(x))  # (n, d)
            last = step == self.updates - 1
            used = len(y) if last else len(y) - len(batch.y)  # the stream's count once
            embedded.append(z.detach()[:used])
            classes.append(y[:used])
            if self.classes > 1:
                loss = pseudo_prototypical_proxy(
                    z, y, self.evolution.prototypes, self.settings.tau, self.settings.repel
                )
                report["loss"] = self.optimizer_step(loss)
        self.evolution.move(torch.cat(embedded), torch.cat(classes), self.settings.inertia)
        offer(self.memory, self.evolution.met, batch.x, batch.y, self.generators["memory"])
        return report

    def readouts_in(self, space: str, model: Model) -> dict[str, Readout]:
        """p_c.z, the similarity of the embedding to every prototype, and the class means."""
        assert isinstance(model, Projected)

        def embed(features: Features) -> Tensor:
            return model.project(features[space])

        def prototypes() -> Centroids:
            p = self.evolution.prototypes
            return Centroids(p, torch.arange(len(p), device=p.device), p.new_ones(len(p)))

        own = Readout(lambda f: embed(f) @ self.evolution.prototypes.T, embed, prototypes)
        return {"prototype": own, "mean": self.mean_readout(space)}


def offer(memory: Memory, met: list[int], x: Tensor, y: Tensor, generator: torch.Generator) -> None:
    """A reservoir for each class, all of the same size as far as the stream allows.

    While there is room, everybody enters. Afterwards a class that holds less than its share,
    capacity / classes seen, takes a random slot of the largest class, and any other keeps a
    reservoir sample of its own images: the n-th of a class that holds k enters with probability
    k / n, in a random slot of that class. `met` counts the images of each class offered so far.

    >>> memory, met = Memory(capacity=4), []
    >>> offer(memory, met, torch.zeros(5, 1), torch.tensor([0, 0, 0, 0, 1]), torch.Generator())
    >>> [len(slots) for slots in memory.members], met
    ([3, 1], [4, 1])
    """
    labels = y.tolist()
    met += [0] * (max(labels) + 1 - len(met))
    draws = torch.rand(len(labels), 2, dtype=torch.float64, generator=generator).tolist()
    memory.seen += len(labels)
    for i, (label, (u, v)) in enumerate(zip(labels, draws, strict=True)):
        met[label] += 1  # image by image: who comes first may have to leave again
        memory.write([_slot(memory, met, label, u, v)], x[i : i + 1], y[i : i + 1])


def _slot(memory: Memory, met: list[int], label: int, u: float, v: float) -> int:
    """The slot for an image of class `label`, or -1; u and v are uniform in [0, 1)."""
    if len(memory) < memory.capacity:
        return len(memory)
    own = memory.members[label] if label < len(memory.members) else []
    if len(own) < max(1, memory.capacity // len(met)):
        own = max(memory.members, key=len)
    elif u >= len(own) / met[label]:
        return -1
    return own[int(v * len(own))]


def pseudo_prototypical_proxy(
    z: Tensor, y: Tensor, prototypes: Tensor, tau: float, repel: float = 1.0
) -> Tensor:
    """Points towards the prototype and the points of their class, away from those of the others.

    With P(q | x) = exp(q.x / tau) / ( exp(q.x / tau) + sum_{k != c} exp(p_k.x / tau) ) for a
    prototype or a point q of class c, B_c the points of class c and n of all classes:

    E_i  = 1/|B_c| ( P(p_c | z_i) + sum_{j in B_c, j != i} P(z_j | z_i) )      c = y_i, z_j constant
    E_ij = 1/2 ( P(z_j | z_i) + P(p_c | z_i) )                                c = y_j != y_i
    L    = 1/n ( sum_i -log E_i + repel sum_{i, j: y_i != y_j} -log(1 - E_ij) )

    The second sum has about n^2 terms and n divides it once: `repel` sets its weight. Prototypes
    are constant, and there must be those of two classes or more.

    z (n, d) of unit length, y (n,), prototypes (C, d), C >= 2 -> 0-d.
    """
    n = len(z)
    to_prototypes = z @ prototypes.detach().T / tau  # (n, C): p_k.z_i / tau
    rivals = others_logsumexp(to_prototypes)  # (n, C): log sum_{k != c} exp(p_k.z_i / tau)
    own, same = rivals.gather(1, y[:, None]), y[:, None] == y
    # log P = logsigmoid(q.x / tau - log sum): no probability is ever formed
    point = F.logsigmoid(z @ z.detach().T / tau - own)  # (n, n): log P(z_j | z_i), y_j = y_i
    prototype = F.logsigmoid(to_prototypes.gather(1, y[:, None]) - own)  # (n, 1)
    fellow = same & ~torch.eye(n, dtype=torch.bool, device=z.device)
    terms = torch.cat([prototype, point.masked_fill(~fellow, -torch.inf)], 1)
    attract = same.sum(1).to(z.dtype).log() - terms.logsumexp(1)  # (n,): -log E_i
    theirs = rivals[:, y]  # (n, n): at z_i, without the class of j
    escape = torch.logaddexp(  # log(1 - P(z_j | z_i)) and log(1 - P(p_c | z_i))
        F.logsigmoid(theirs - z @ z.T / tau), F.logsigmoid(theirs - to_prototypes[:, y])
    )
    push = (math.log(2) - escape).masked_fill(same, 0.0)
    return (attract.sum() + repel * push.sum()) / n


def others_logsumexp(scores: Tensor) -> Tensor:
    """log sum_{k != c} exp(s_k) for every c: scores (n, C), C >= 2 -> (n, C).

    log(S - exp(s_c)) of the full sum S loses its digits only where s_c is the largest of the row
    by far, so the column of the largest is summed without it. One pass instead of C.

    >>> others_logsumexp(torch.tensor([[0.0, 100.0, 0.0]]))
    tensor([[100.0000,   0.6931, 100.0000]])
    """
    largest = F.one_hot(scores.argmax(1), scores.shape[1]).bool()
    rest = scores.masked_fill(largest, -torch.inf).logsumexp(1, keepdim=True)
    total = scores.logsumexp(1, keepdim=True)
    share = (scores - total).masked_fill(largest, -1.0).exp()  # at most 1/2
    return torch.where(largest, rest, total + torch.log1p(-share))
