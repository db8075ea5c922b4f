"""Co2L: contrastive continual learning (Cha, Lee and Shin, ICCV 2021, arXiv 2106.14413).

An offline method in two phases. While a task lasts, n images are two views each, and with u the
unit projections g(h(.)) of the 2n views and S those that come from the stream

    L_con = -1/2n (tau / 0.07) sum_{i in S} 1/|P_i| sum_{p in P_i} log( e_ip / sum_{j != i} e_ij )
    L_ird = -1/2n sum_i sum_{j != i} p_i^past(kappa*)_j log p_i(kappa)_j
    L = L_con + lambda L_ird,  e_ij = exp(u_i.u_j / tau),  p_i(kappa) = softmax_j u_i.u_j / kappa

replayed images are contrasts but never anchors (asymmetric), and the relations inside the batch
stay those that the weights of before the task saw. When the task is over, the features are frozen
and a linear classifier is fitted from nothing to the task's images and the memory, classes drawn
equally often; then the memory is made anew, random images in equal shares of all classes.

| symbol         | here                         | meaning                                        |
|----------------|------------------------------|------------------------------------------------|
| h, g           | model.net, model.project     | feature extractor, projection (two layers)     |
| tau            | settings.tau                 | temperature of the contrastive loss            |
| kappa, kappa*  | settings.kappa, .kappa_past  | temperatures of the relations now and before   |
| lambda         | settings.distill             | weight of the relations                        |
| past model     | teacher                      | weights at the start of the task               |
| W, b           | model.head                   | linear classifier, fitted at the task's end    |

Differs from the reference:

- 64 images are replayed a step instead of mixing the memory into the task's images. Preset
  `reference` has batches of 512 with the share that mixing gives at the usual memory sizes (at
  others that of 500 images on CIFAR-10); in the first task they are the stream's part alone.
- The net, its initial weights and images from 0 to 1 are those of all methods; `reference` has on
  colour images a ResNet-18 of full width, Kaiming's weights, and images standardized by the data
  set's own deviation. On Tiny-ImageNet crops start at 20 % of the area (10 there), without blur.
- The teacher is in eval mode, as the paper reads; in the authors' code in train mode
  (`teacher_mode`, part of `reference`).
- The classifier sees a few augmented views in turn (`linear_views`; one an epoch there), covers the
  classes seen and starts from zero; each set of weights has its own.
- The lr changes by epoch, without warm-up, and all tasks have equal epochs; the original gives the
  first task five to ten times as many.

The classifier knows the classes of a task only when the task is over: ask it then.

Cost: 2 (n + m) images forward and backward, from the second task on as many forward through the
teacher; at a task's end `linear_views` passes over task and memory for each set of weights.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import losses
from ocil.learners.learner import Report
from ocil.learners.model import Model, evaluating
from ocil.learners.presets import mixed_in, on_colour
from ocil.learners.replay import CHUNK, ReplayLearner
from ocil.memory import exemplars
from ocil.nets.projection import Projection
from ocil.settings import Settings, setting
from ocil.stream import Batch

LINEAR_BATCH = 256  # images per step of the classifier
BASE_TAU = 0.07  # L_con counts tau / 0.07 times: the balance with L_ird rests on it


@dataclass(frozen=True)
class Co2lSettings(Settings):
    tau: float = setting(0.5, above=0, search=(0.05, 1.0))
    """Temperature of the contrastive loss."""
    kappa: float = setting(0.2, above=0)
    """Temperature of the relations under the weights of now."""
    kappa_past: float = setting(0.01, above=0)
    """Temperature of the relations under the weights of before the task."""
    distill: float = setting(1.0, search=(0.1, 10.0))
    """Weight of the relations (lambda); 0 leaves them out."""
    projection: int = setting(128, low=1)
    """Size of the projected features."""
    teacher_mode: Literal["eval", "train"] = "eval"
    """Batch norm of the teacher: by running statistics, or by the batch as in the reference."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate over the epochs of a task; cosine ends at a thousandth."""
    linear_lr: float = setting(1.0, above=0)
    """Learning rate of the classifier, divided by 5 after 60, 75 and 90 % of its epochs."""
    linear_epochs: int = setting(100, low=1)
    """Epochs of the classifier at the end of a task."""
    linear_views: int = setting(2, low=1)
    """Augmented views of each image that the classifier sees; the reference's has one an epoch."""


# At memory sizes without a preset of their own, the share of 500 images among 10 000 of a task.
REFERENCE = {
    "optimizer": "sgd", "lr": 0.5, "momentum": 0.9, "schedule": "cosine", "teacher_mode": "train",
    "ema": 0.0, "epochs": 100, "batch": 488, "replay": 24, "linear_views": 100,
}  # fmt: skip
_TINY = {"kappa": 0.1, "kappa_past": 0.1, "linear_lr": 0.1}
_COLOUR = {
    "net": "resnet18-global", "width": 64, "init": "kaiming", "inputs": "standardized",
}  # fmt: skip


class ProjectedModel(Model):
    """Net, projection, and a head that is fitted to each set of weights instead of averaged."""

    not_averaged: ClassVar[tuple[str, ...]] = ("head.",)

    def __init__(self, net: torch.nn.Module, size: int, generator: torch.Generator) -> None:
        super().__init__(net, generator)
        self.project = Projection(self.head.features, self.head.features, size, generator)

    def embed(self, x: Tensor) -> Tensor:
        return self.project(self.net(x))


class Co2l(ReplayLearner[Co2lSettings]):
    method = "co2l"
    title = "Contrastive continual learning"
    paper = "Cha et al., Co2L: Contrastive Continual Learning"
    year = 2021
    needs_tasks = True
    memory_policy = "random, equal shares of all classes, chosen at the end of each task"
    settings_type = Co2lSettings
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "default/digits": {"lr": 1e-3, "ema": 0.9},  # on held-out training images
        "default/mnist": {"tau": 0.1, "lr": 1e-3},
        "default/cifar10": {},
        "default/cifar100": {},
        "default/tiny-imagenet": _TINY,
        "reference": REFERENCE,
        **on_colour(
            "reference",
            _COLOUR,
            {"tiny-imagenet": _TINY | {"lr": 0.1, "epochs": 50, "classes_per_task": 20}},
        ),
        **mixed_in(
            "reference", 512, {"cifar10": 10_000, "cifar100": 5_000, "tiny-imagenet": 10_000}
        ),
    }
    model: ProjectedModel

    def build_model(self, net: torch.nn.Module) -> ProjectedModel:
        return ProjectedModel(net, self.settings.projection, self.generators["init"])

    def begin_task(self, task: int) -> None:
        if self.classes:
            self.keep_teacher()

    def step(self, batch: Batch) -> Report:
        s = self.settings
        if s.schedule == "cosine":
            share = (1 + math.cos(math.pi * batch.epoch / batch.epochs)) / 2
            for group in self.optimizer.param_groups:
                group["lr"] = s.lr * (1e-3 + (1 - 1e-3) * share)
        report = {}
        for _ in range(self.updates):
            x, y = self.with_replay(batch)
            views = torch.cat([self.augmented(x), self.augmented(x)])
            self.backbone_images += len(views)
            u = self.model.embed(views)
            anchors = torch.arange(len(x), device=self.device) >= len(x) - len(batch.y)
            both = {"y": y.repeat(2), "anchors": anchors.repeat(2)}
            loss = s.tau / BASE_TAU * losses.supervised_contrastive(u, tau=s.tau, **both)
            if self.teacher and s.distill:
                relations = relation_distillation(u, self.past(views), s.kappa, s.kappa_past)
                loss = loss + s.distill * relations
                report["relations"] = relations.detach()
            report["loss"] = self.optimizer_step(loss)
        return report

    @torch.no_grad()
    def past(self, views: Tensor) -> Tensor:
        """Projections (n, p) of the same views under the weights of before the task."""
        assert isinstance(self.teacher, ProjectedModel)
        self.backbone_images += len(views)
        return self.teacher.train(self.settings.teacher_mode == "train").embed(views)

    def end_task(self, task: int, images: Tensor, labels: Tensor) -> None:
        x, y = images, labels
        if len(self.memory):
            old_x, old_y = self.memory_items()
            x, y = torch.cat([x, old_x.cpu()]), torch.cat([y, old_y.cpu()])
        for model in self.spaces.values():
            self.fit_head(model, x, y)
        if self.memory.capacity:
            draw = self.generators["memory"]
            held = exemplars.by_class(self.memory.labels, self.classes)
            items, slots = exemplars.exchange(
                [exemplars.shuffled(own, draw) for own in held],
                exemplars.by_class(labels.tolist(), self.classes),
                self.memory.capacity,
                lambda own, count: exemplars.shuffled(own, draw)[:count],
                draw,
            )
            self.memory.seen += len(labels)
            self.memory.write(slots, images[items], labels[items])
        self.cache.clear()

    def fit_head(self, model: Model, x: Tensor, y: Tensor) -> None:
        """Fit the linear classifier on frozen features of x, every class drawn equally often."""
        s = self.settings
        chance = 1 / torch.bincount(y)[y]
        y, w = y.to(self.device), torch.zeros_like(model.head.weight, requires_grad=True)
        b = torch.zeros_like(model.head.bias, requires_grad=True)
        optimizer = torch.optim.SGD([w, b], lr=s.linear_lr, momentum=0.9)
        for epoch, z in enumerate(self.linear_inputs(model, x)):
            drops = sum(epoch >= share * s.linear_epochs for share in (0.6, 0.75, 0.9))
            optimizer.param_groups[0]["lr"] = s.linear_lr * 0.2**drops
            draw = self.generators["method"]
            order = torch.multinomial(chance, len(y), replacement=True, generator=draw)
            for picked in order.to(self.device).split(LINEAR_BATCH):
                loss = F.cross_entropy(F.linear(z[picked], w, b), y[picked])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        model.head.weight.data.copy_(w.detach())
        model.head.bias.data.copy_(b.detach())

    @torch.no_grad()
    def linear_inputs(self, model: Model, x: Tensor) -> Iterator[Tensor]:
        """Eval-mode features (n, d) of an augmented view of x for each epoch of the classifier."""
        views, wanted = [], self.settings.linear_views
        for epoch in range(self.settings.linear_epochs):
            if epoch >= wanted:
                yield views[epoch % wanted]
                continue
            self.backbone_images += len(x)
            with evaluating(model):
                parts = (self.augmented(part.to(self.device)) for part in x.split(CHUNK))
                z = torch.cat([model.net(part) for part in parts])
            if wanted < self.settings.linear_epochs:  # else none is used twice
                views.append(z)
            yield z


def relation_distillation(u: Tensor, past: Tensor, kappa: float, kappa_past: float) -> Tensor:
    """Every point finds the others as similar as it did under the past weights.

    p_i(kappa) = softmax over j != i of u_i.u_j / kappa, and the cross-entropy of both,
    L = -1/n sum_i sum_{j != i} p_i^past(kappa*)_j log p_i(kappa)_j; the past has no gradient.

    u (n, d) and past (n, d') of unit length, past from a model that is done learning -> 0-d.

    >>> u = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> round(float(relation_distillation(u, u, 1.0, 1.0)), 4)  # the entropy of the relations
    0.6192
    """
    target = _others(past.detach() @ past.detach().T / kappa_past).softmax(1)
    # log_softmax and not the log of a softmax: at kappa* = 0.01 the latter underflows to 0 * -inf
    return -(target * F.log_softmax(_others(u @ u.T / kappa), 1)).sum() / len(u)


def _others(similarity: Tensor) -> Tensor:
    """A square matrix without its diagonal: (n, n) -> (n, n - 1)."""
    n = len(similarity)
    return similarity.flatten()[1:].view(n - 1, n + 1)[:, :-1].reshape(n, n - 1)
