"""GeoDL: distillation along geodesics of features (Simon et al., CVPR 2021, arXiv 2104.08572).

An offline method on the base of LUCIR (Hou et al. 2019). Features may move, but those of before
the task and those of now must look alike from every subspace on the shortest path between the
subspaces that they span. For a batch of stream and replayed images

    L = CE(s cos(w_c, h(x)), y) + lambda sqrt(C_old / C_new) L_geo   (L_geo from the second task)
    L_geo = mean_i 1 - p_i^T G z_i / sqrt(p_i^T G p_i  z_i^T G z_i)

with z_i and p_i the features under the weights of now and of before the task, and G the mean of the
projections on all subspaces of the path, a constant of the batch (`flow_kernel`). When a
task is over, herding chooses the images that stand for its classes, and old classes give up those
chosen last.

| symbol     | here                     | meaning                                                |
|------------|--------------------------|--------------------------------------------------------|
| h          | model.net                | feature extractor                                      |
| w_c, s     | model.head               | cosine classifier and its learnt scale                 |
| z, p       | describe                 | last map averaged to 2x2, flat; the feature of an MLP  |
| k          | settings.subspace        | dimensions of a subspace                               |
| lambda     | settings.distill         | weight of the distillation                             |
| C_old, C_new | teacher.head, classes  | classes before the task, and new in it                 |

Differs from the reference:

- G is exact; the authors' code has random noise in an inverse, a complement cut to 60 vectors and
  a centring over dimensions.
- The paper's cosine is the default. The authors' code trains (p - z)^T G (p - z) (`form`), much
  smaller for features that agree: it needs a larger lambda (10 in preset `reference`).
- The root counts the new classes that have come; theirs knows those of the task (`adaptive`).
- 64 images are replayed a step, and k is 32 for such batches, instead of mixing the memory into the
  task's images; `reference` has batches of 128 with the share that mixing gives on the CIFARs.
- The reference takes the last ReLU off its nets; ours keep it, so that all features point one way,
  and a class vector imprinted as their mean is close to every image and outdoes the trained ones:
  new vectors are drawn (`imprint` restores it, from the first batch of a class).
- Old class vectors go on learning: freezing them (`freeze_old`) is meant for a first task of 50
  classes, which cannot be had here. The scale starts at 10, for fewer steps.
- The optimiser lives through tasks (`renew` makes a new one). `reference` has all these switches,
  and on colour images full width, padded crops, Kaiming's weights, standardized images; its net is
  a ResNet-18, as there is no ResNet-32.

Cost: n + m images forward and backward, from the second task on as many forward through the
teacher, and three decompositions, O(d (n + m)^2); once a task all its images for herding.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.learners.learner import Report
from ocil.learners.model import Model
from ocil.learners.presets import mixed_in, on_colour
from ocil.learners.readouts import class_means
from ocil.learners.replay import ReplayLearner
from ocil.memory import exemplars
from ocil.nets.heads import CosineHead
from ocil.nets.resnet import ResNet18
from ocil.settings import Settings, setting
from ocil.stream import Batch


@dataclass(frozen=True)
class GeodlSettings(Settings):
    distill: float = setting(5.0, search=(0.5, 20.0))
    """Weight of the distillation (lambda), times sqrt(old classes / new classes); 0 for none."""
    subspace: int = setting(32, low=1)
    """Dimensions of the subspaces (k), at most two fewer than images in the batch."""
    form: Literal["cosine", "difference"] = "cosine"
    """What is small on all subspaces: one minus the cosine (paper) or the difference (code)."""
    scale: float = setting(10.0, above=0)
    """Scale that the cosine classifier starts with; it is learnt."""
    imprint: bool = False
    """New class vectors start as the mean direction of their first images, as in the reference."""
    freeze_old: bool = False
    """Class vectors of finished tasks stay as they are."""
    adaptive: Literal["seen", "task"] = "seen"
    """New classes in the root beside lambda: those that have come, or `classes_per_task`."""
    renew: bool = False
    """Begin every task with a new optimiser, without the moments of before."""
    schedule: Literal["constant", "steps"] = "constant"
    """Learning rate over the epochs of a task; steps divides by 10 at half and three quarters."""


REFERENCE = {
    "optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "schedule": "steps", "scale": 1.0,
    "imprint": True, "freeze_old": True, "ema": 0.0, "epochs": 160, "batch": 100, "replay": 28,
    "subspace": 126, "form": "difference", "distill": 10.0, "adaptive": "task", "renew": True,
}  # fmt: skip
_COLOUR = {
    "net": "resnet18-global", "width": 64, "init": "kaiming", "inputs": "standardized",
    "augment": "partial",
}  # fmt: skip


class CosineModel(Model):
    """Net and a cosine classifier."""

    def __init__(self, net: torch.nn.Module, scale: float, generator: torch.Generator) -> None:
        super().__init__(net, generator)
        self.head = CosineHead(self.head.features, generator, scale=scale)  # pyright: ignore


class Geodl(ReplayLearner[GeodlSettings]):
    method = "geodl"
    title = "Distillation along the geodesic between feature subspaces"
    paper = "Simon et al., On Learning the Geodesic Path for Incremental Learning"
    year = 2021
    needs_tasks = True
    memory_policy = "herded, equal shares of all classes, chosen at the end of each task"
    settings_type = GeodlSettings
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "default/digits": {"lr": 1e-3, "ema": 0.9},  # on held-out training images
        "default/mnist": {"lr": 1e-3},
        "default/cifar10": {},
        "default/cifar100": {},
        "default/tiny-imagenet": {},
        "reference": REFERENCE,
        **on_colour("reference", _COLOUR, {"cifar100": {"weight_decay": 5e-4}}),
        **mixed_in("reference", 128, {"cifar10": 10_000, "cifar100": 5_000}),
    }

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # Right after the step and before the average: neither decay nor moments move them.
        self.optimizer.register_step_post_hook(lambda *_: self._hold_old())

    def build_model(self, net: torch.nn.Module) -> CosineModel:
        return CosineModel(net, self.settings.scale, self.generators["init"])

    def begin_task(self, task: int) -> None:
        if self.classes:
            self.keep_teacher()
        if self.settings.renew:
            self.optimizer.state.clear()

    def step(self, batch: Batch) -> Report:
        s, report = self.settings, {}
        if self.teacher and s.imprint and self.classes > self.known:
            self.imprint(batch, self.known)
        if s.schedule == "steps":
            self.drop_lr(batch, (0.5, 0.75))
        for _ in range(self.updates):
            x, y = self.with_replay(batch)
            x = self.augmented(x)
            features, z = self.describe(self.model, x)
            loss = F.cross_entropy(self.model.head(features), y)
            if self.teacher and s.distill:
                with torch.no_grad():
                    _, past = self.describe(self.teacher, x)
                kept = geodesic_distillation(z, past, s.subspace, s.form)
                loss = loss + self.strength(self.teacher.head.classes) * kept
                report["distillation"] = kept.detach()
            report["loss"] = self.optimizer_step(loss)
        return report

    def strength(self, old: int) -> float:
        """lambda sqrt(C_old / C_new)."""
        whole = self.settings.classes_per_task if self.settings.adaptive == "task" else 1
        return self.settings.distill * math.sqrt(old / max(whole, self.classes - old))

    def describe(self, model: Model, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features (n, d) for the head, and those that are distilled, from one pass, counted."""
        self.backbone_images += len(x)
        if not isinstance(model.net, ResNet18):
            features = model.net(x)
            return features, features
        last = model.net.forward_maps(x)[-1]
        return model.net.pool(last), F.adaptive_avg_pool2d(last.float(), 2).flatten(1)

    @torch.no_grad()
    def imprint(self, batch: Batch, known: int) -> None:
        """Vectors of classes from `known` on: their mean direction, as long as the old ones are."""
        new = batch.y >= known
        self.backbone_images += int(new.sum())
        z = self.encode(self.model, batch.x[new])
        means = class_means(z, batch.y[new].to(self.device), self.classes)[known:]
        weight = self.model.head.weight
        weight[known:] = means * weight[:known].norm(dim=1).mean()
        if self.average:
            self.average.model.head.weight[known:] = weight[known:]

    @torch.no_grad()
    def _hold_old(self) -> None:
        if self.settings.freeze_old and self.teacher:
            old = self.teacher.head.weight
            self.model.head.weight[: len(old)] = old

    @torch.no_grad()
    def end_task(self, task: int, images: Tensor, labels: Tensor) -> None:
        if not self.memory.capacity:
            return
        self.backbone_images += len(images)
        z = F.normalize(self.encode(self.model, images), dim=1)
        ranks = self.memory.columns["rank"].tolist() if len(self.memory) else []
        held = exemplars.by_class(self.memory.labels, self.classes)
        items, slots = exemplars.exchange(
            [sorted(own, key=ranks.__getitem__) for own in held],
            exemplars.by_class(labels.tolist(), self.classes),
            self.memory.capacity,
            lambda own, count: [own[i] for i in exemplars.herding(z[own], count)],
            self.generators["memory"],
        )
        # Best first within a class, so that the order of entering is the rank.
        rank = self.memory.seen + torch.arange(len(items))
        self.memory.seen += len(labels)
        self.memory.write(slots, images[items], labels[items], rank=rank)
        self.cache.clear()


class FlowKernel(NamedTuple):
    """G = [A B] [[l1, l2], [l2, l3]] [A B]^T, with A, B (d, k) and diagonal blocks l (k,)."""

    a: Tensor
    b: Tensor
    l1: Tensor
    l2: Tensor
    l3: Tensor

    def product(self, x: Tensor, y: Tensor) -> Tensor:
        """x_i^T G y_i for the rows of x (n, d) and y (n, d) -> (n,); G itself is never formed."""
        (xa, xb), (ya, yb) = ((v @ self.a, v @ self.b) for v in (x, y))  # (n, k) each
        return (xa * (self.l1 * ya + self.l2 * yb) + xb * (self.l2 * ya + self.l3 * yb)).sum(1)


def subspace(z: Tensor, k: int) -> Tensor:
    """Orthonormal basis (d, k) of the k main directions of the rows of z (n, d), not centred."""
    q, r = torch.linalg.qr(z.T)  # first, since n < d as a rule: half the time of an SVD alone
    return q @ torch.linalg.svd(r, full_matrices=False).U[:, :k]


def flow_kernel(p0: Tensor, p1: Tensor) -> FlowKernel:
    """G of the geodesic between two subspaces with orthonormal bases p0 and p1 (d, k).

    The shortest path between them on the Grassmann manifold passes through the subspaces Pi(nu),
    0 <= nu <= 1, and G = int_0^1 Pi(nu) Pi(nu)^T dnu is the mean of the projections on all of them,
    which has a closed form, the geodesic flow kernel (Gong et al. 2012).

    P0^T P1 = U cos(Theta) V^T gives the principal angles; A = P0 U, B = (A cos(Theta) - P1 V) /
    sin(Theta), and Pi(nu) = A cos(nu Theta) - B sin(nu Theta) runs from A to P1 V. Integrated,

        l1, l3 = (1 +- sin(2 th) / (2 th)) / 2   and   l2 = -sin(th)^2 / (2 th).
    """
    u, cos, vh = torch.linalg.svd(p0.T @ p1)
    a = p0 @ u
    residual = a * cos - p1 @ vh.T  # (d, k), columns of length sin(Theta)
    sin = residual.norm(dim=0)
    angle = torch.atan2(sin, cos)  # exact for small angles, where arccos is not
    # Where the angle vanishes so do l2 and l3, and the direction of the column does not matter.
    b = residual / sin.clamp(min=torch.finfo(sin.dtype).tiny)
    full, half = torch.sinc(2 * angle / torch.pi), torch.sinc(angle / torch.pi)  # sin(v) / v
    return FlowKernel(a, b, (1 + full) / 2, -angle.sin() * half / 2, (1 - full) / 2)


def geodesic_distillation(z: Tensor, past: Tensor, k: int, form: str = "cosine") -> Tensor:
    """Old and new features agree on all subspaces between those that they span.

    With rows z_i and their past p_i of unit length and G a constant of the batch,

        cosine      L = mean_i 1 - p_i^T G z_i / sqrt(p_i^T G p_i  z_i^T G z_i)   (as in the paper)
        difference  L = mean_i (p_i - z_i)^T G (p_i - z_i)              (as in the authors' code)

    k is lowered to n - 2 and to d; a batch of fewer than three takes G = 1, all of the space.

    z (n, d), past (n, d), neither of unit length yet -> 0-d.
    """
    z, past = F.normalize(z, dim=1), F.normalize(past.detach(), dim=1)
    k = min(k, len(z) - 2, z.shape[1])
    kernel = flow_kernel(subspace(past, k), subspace(z.detach(), k)) if k > 0 else None
    product = kernel.product if kernel else lambda a, b: (a * b).sum(1)
    if form == "difference":
        return product(past - z, past - z).mean()
    lengths = product(past, past) * product(z, z)
    return (1 - product(past, z) / lengths.clamp(min=1e-16).sqrt()).mean()
