"""MOSE: multi-level online sequential experts (Yan et al., CVPR 2024, arXiv 2404.00417).

Every stage i = 1..S of the net gets an exit to features h_i of the width of the last, a classifier
g_i and a contrastive projection p_i: S experts that share one pass. With the task's own images N
(the stream's and some of the memory) and images P of older tasks (of the memory, and a few of the
stream), every image in four views (itself, mirrored, both augmented), a step minimises

    L = sum_i  SupCon(p_i(h_i), N u P) + CE_task(g_i(h_i), N) + 2 CE(g_i(h_i), P)
      + sum_{i < S}  | unit(A h_S) - unit(h_i) |_F

where CE_task knows the classes of the current task only. The last sum is reverse self-distillation:
the shallow experts, without gradient, teach the deepest. In the first task there is no P, and CE
covers all of N. The nearest class mean of the memory in h_S answers ("mean"), or the mean over all
experts of the distances ("moe-mean").

| symbol     | here                                   | meaning                                  |
|------------|----------------------------------------|------------------------------------------|
| h_i        | model.stages                           | features of each expert                  |
| g_i, p_i   | model.classifiers, model.projections   | linear both, as in the reference         |
| A          | model.adapt                            | trained by reverse distillation alone    |
| tau        | settings.tau                           | temperature of SupCon                    |
| R          | settings.replay                        | images of the memory, per part           |

N is the batch of n and, of the task's classes, R images of the memory in the first task, R/2 - n
later; P the first min(R C_t / C, n) of the batch and min(R - those, 7 C) others of the memory, with
C classes seen, C_t of them in this task.

Differs from the reference:

- Classifiers cover the classes seen, and the first batch of all is learned too.
- Older images are those of classes that the current task has not had, which is the same unless
  classes come back. Without task ids the stream is one task.
- A class that the memory lost is never the answer; there it has a random mean.
- AdamW in the place of Adam with L2, and the common augmentation; digits are not mirrored. Preset
  `reference` has full width, Kaiming's weights, live weights and on colour images its own
  augmentation (`strong`, which mirrors again) and standardized images.
- On a net without maps (mlp) an exit is a linear layer, without a gate.
- The norm is over the whole batch, as in the authors' code; the paper has a mean.
- On MNIST held-out images chose the head of the last expert.

Cost: four views, 4 (10 + R) images forward and backward in the first task and a task's first batch,
else at most 4 (R/2 + R); half of that unmirrored. Class means need a pass over the memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocil import losses
from ocil.learners.learner import Report
from ocil.learners.model import Model
from ocil.learners.parts import Values
from ocil.learners.presets import on_colour
from ocil.learners.readouts import Features, Readout, class_means, nearest_mean
from ocil.learners.replay import ReplayLearner, as_float
from ocil.memory import policies
from ocil.nets.experts import Exits
from ocil.nets.heads import GrowingLinear
from ocil.nets.projection import Projection
from ocil.settings import Settings, setting
from ocil.stream import Batch

PER_CLASS = 7  # older images replayed for each class seen, at most
PROJECTED = 128  # width of the contrastive space
Images = tuple[Tensor, Tensor]  # (n, ...), class ids (n,)


@dataclass(frozen=True)
class MoseSettings(Settings):
    tau: float = setting(0.07, above=0, search=(0.03, 0.5))
    """Temperature of the contrastive loss."""
    memory_weight: float = setting(2.0, search=(0.5, 4.0))
    """Weight of the cross-entropy on older images."""
    reverse: float = setting(1.0, search=(0.1, 3.0))
    """Weight of reverse self-distillation; 0 leaves it out."""
    mirror: bool = True
    """Mirrored views, besides those that the augmentation makes."""


_FULL_NET = {"net": "resnet18-global", "width": 64, "init": "kaiming"}


class Experts(Model):
    """A net whose every stage has an exit, a classifier and a projection; `head` is the last's."""

    def __init__(self, net: nn.Module, generator: torch.Generator) -> None:
        super().__init__(net, generator)
        self.exits = Exits(net, generator)
        d, early = self.head.features, range(self.exits.count - 1)
        self.early_heads = nn.ModuleList(GrowingLinear(d, generator) for _ in early)
        self.projections = nn.ModuleList(
            Projection(d, 0, PROJECTED, generator) for _ in range(self.exits.count)
        )
        self.adapt = Projection(d, 0, d, generator)

    def stages(self, x: Tensor) -> list[Tensor]:
        """Images -> (n, d) for each expert, the last one's equal to `net(x)`."""
        return self.exits(self.net, x)

    @property
    def classifiers(self) -> list[nn.Module]:
        return [*self.early_heads, self.head]


class CurrentTask(Values):
    """The number of the current task and its classes so far."""

    saved: ClassVar[tuple[str, ...]] = ("task", "current")

    def __init__(self) -> None:
        self.task, self.current = -1, list[int]()

    def meet(self, task: int, labels: list[int]) -> None:
        before = self.current if task == self.task else []
        self.task, self.current = task, sorted({*before, *labels})

    def forget(self, label: int) -> None:
        self.current = [c - (c > label) for c in self.current if c != label]

    def check(self, classes: int) -> None:
        if any(not 0 <= c < classes for c in self.current):
            raise ValueError("the current task has classes that do not exist")


class Mose(ReplayLearner[MoseSettings]):
    method = "mose"
    title = "Multi-level online sequential experts"
    paper = (
        "Yan et al., Orchestrate Latent Expertise: Multi-Level Supervision, Reverse Distillation"
    )
    year = 2024
    needs_tasks = True
    needs_memory = True
    own_readout = "mean"
    settings_type = MoseSettings
    presets = {  # noqa: RUF012
        "default": {"lr": 1e-3},
        "default/digits": {"lr": 4e-3, "ema": 0.9, "mirror": False},
        "default/mnist": {"mirror": False, "readout": "head"},
        "default/cifar10": {},
        "default/cifar100": {},
        "default/tiny-imagenet": {"net": "resnet18-global"},
        "reference": _FULL_NET | {"lr": 1e-3, "ema": 0.0},
        "reference/mnist": {"inputs": "standardized"},
        **on_colour("reference", {"inputs": "standardized", "augment": "strong"}),
    }

    model: Experts

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.progress = self.parts[""] = CurrentTask()

    def build_model(self, net: nn.Module) -> Experts:
        return Experts(net, self.generators["init"])

    def step(self, batch: Batch) -> Report:
        self.progress.meet(-1 if batch.task is None else batch.task, batch.y.tolist())
        report = {}
        for _ in range(self.updates):
            new, old = self.divide(batch)
            loss = self.loss(self.views(new), self.views(old), report)
            report["loss"] = self.optimizer_step(loss)
        self.remember(batch)
        return report

    def divide(self, batch: Batch) -> tuple[Images, Images]:
        """N and P of the step: images of the current task, and older ones; raw."""
        replay, n, now = self.settings.replay, len(batch.y), len(self.progress.current)
        older = [c for c in self.memory.filled if c not in self.progress.current]
        first = now == self.classes
        own = self.drawn(self.progress.current, replay if first else max(replay // 2 - n, 0))
        fresh = 0 if first else min(replay * now // self.classes, n)
        past = self.drawn(older, 0 if first else min(replay - fresh, PER_CLASS * self.classes))
        join = self.memory.joined
        return join(batch.x, batch.y, own), join(batch.x[:fresh], batch.y[:fresh], past)

    def drawn(self, classes: list[int], wanted: int) -> list[int]:
        """Slots of the memory, uniformly from all of the classes."""
        draw = self.generators["memory"]
        return policies.of_classes(self.memory.members, classes, wanted, draw)

    def views(self, part: Images) -> Images:
        """Float views (4 n, ...) of n images, or 2 n where there are no mirrored ones."""
        x, y = as_float(part[0]), part[1]
        if self.settings.mirror and x.dim() == 4:
            x, y = torch.cat([x, x.flip(-1)]), y.repeat(2)
        return torch.cat([x, self.augmented(x)]), y.repeat(2)

    def loss(self, new: Images, old: Images, report: Report) -> Tensor:
        s, model, n = self.settings, self.model, len(new[1])
        x, y = torch.cat([new[0], old[0]]), torch.cat([new[1], old[1]])
        self.backbone_images += len(x)
        features = model.stages(x)
        current = torch.tensor(self.progress.current, device=self.device)
        among = losses.present(current, self.classes)
        student = model.adapt(features[-1])
        total = x.new_zeros(())
        for h, classify, project in zip(
            features, model.classifiers, model.projections, strict=True
        ):
            logits = classify(h)
            # In the first task this is the softmax over all classes: there are no others.
            total = total + losses.restricted_cross_entropy(logits[:n], y[:n], among)
            total = total + losses.supervised_contrastive(project(h), y, s.tau)
            if len(y) > n:
                total = total + s.memory_weight * F.cross_entropy(logits[n:], y[n:])
        gaps = [reverse_distillation(student, h) for h in features[:-1]]
        if gaps and s.reverse:
            reverse = torch.stack(gaps).sum()
            report["reverse"] = reverse.detach()
            total = total + s.reverse * reverse
        return total

    def forward_features(self, model: Model, x: Tensor) -> Tensor:
        """(n, S d): the features of all experts, the last one's last."""
        assert isinstance(model, Experts)
        return torch.cat(model.stages(x), 1)

    def readouts_in(self, space: str, model: Model) -> dict[str, Readout]:
        """The last expert's head and means, and the mean over all experts of both ("moe")."""
        assert isinstance(model, Experts)

        def experts(features: Features) -> tuple[Tensor, ...]:  # S times (n, d)
            return features[space].split(model.head.features, 1)

        def last(features: Features) -> Tensor:
            return experts(features)[-1]

        def heads(features: Features) -> Tensor:  # (S, n, C)
            pairs = zip(model.classifiers, experts(features), strict=True)
            return torch.stack([classify(z) for classify, z in pairs])

        def means(features: Features) -> Tensor:  # (S, n, C)
            return self.distances_to_means(space, experts(features))

        def unit(features: Features) -> Tensor:
            return F.normalize(last(features), dim=1)

        def all_unit(features: Features) -> Tensor:
            return F.normalize(features[space], dim=1)

        return {
            "head": Readout(lambda f: model.head(last(f)), last),
            "mean": Readout(lambda f: means(f)[-1], unit, needs_memory=True),
            "moe-head": Readout(lambda f: heads(f).mean(0), lambda f: f[space]),
            "moe-mean": Readout(lambda f: means(f).mean(0), all_unit, needs_memory=True),
        }

    def distances_to_means(self, space: str, parts: Sequence[Tensor]) -> Tensor:
        """Minus the squared distances of S times (n, d) to class means, unit length: (S, n, C)."""
        if not len(self.memory):
            return parts[0].new_full((len(parts), len(parts[0]), self.classes), -torch.inf)
        if space not in self.cache:
            x, y = self.memory_items()
            old = self.features(x)[space].split(parts[0].shape[1], 1)
            self.cache[space] = torch.stack([class_means(z, y, self.classes) for z in old])
        return torch.stack([nearest_mean(*p) for p in zip(parts, self.cache[space], strict=True)])


def reverse_distillation(student: Tensor, teacher: Tensor) -> Tensor:
    """Distance of unit features from those of a shallower exit: (n, d) both -> 0-d.

    | s / |s| - t / |t| |_F, the Frobenius norm of the whole (n, d) difference, which grows with
    sqrt(n), as in the reference code, not a mean over points. The teacher t gets no gradient.

    >>> reverse_distillation(torch.tensor([[2.0, 0.0]] * 4), torch.tensor([[0.0, 3.0]] * 4)) ** 2
    tensor(8.0000)
    """
    difference = F.normalize(student, dim=1) - F.normalize(teacher.detach(), dim=1)
    return torch.linalg.vector_norm(difference)
