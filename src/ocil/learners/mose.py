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

Differs from the reference: classifiers cover the classes seen; the common augmentation is in the
place of its own (but for preset `reference`); the first batch of all is learned too; older images
are those of classes that the current task has not had, which is the same unless classes come back;
a class that the memory lost is never the answer. On a net without maps (mlp) an exit is a linear
layer. Without task ids the stream is one task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ocil import losses
from ocil.learners.learner import CHUNK, Learner, Reader, as_float, evaluating
from ocil.learners.model import Model
from ocil.learners.presets import on_colour
from ocil.learners.readouts import class_means, nearest_mean
from ocil.memory import subsets
from ocil.nets.experts import Exits
from ocil.nets.heads import GrowingLinear
from ocil.nets.projection import Projection
from ocil.settings import Settings, setting
from ocil.stream import Batch

PER_CLASS = 7  # older images replayed for each class seen, at most
PROJECTED = 128  # width of the contrastive space
Part = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class MoseSettings(Settings):
    tau: float = setting(0.07, above=0)
    """Temperature of the contrastive loss."""
    memory_weight: float = 2.0
    """Weight of the cross-entropy on older images."""
    reverse: float = 1.0
    """Weight of reverse self-distillation; 0 leaves it out."""
    mirror: bool = True
    """Mirrored views, besides those that the augmentation makes."""


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

    def stages(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Images -> (n, d) for each expert, the last one's equal to `net(x)`."""
        return self.exits(self.net, x)

    @property
    def classifiers(self) -> list[nn.Module]:
        return [*self.early_heads, self.head]


class Mose(Learner):
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
        "reference": {
            "lr": 1e-3,
            "ema": 0.0,
            "net": "resnet18-global",
            "width": 64,
            "init": "kaiming",
        },
        "reference/mnist": {"inputs": "standardized"},
        **on_colour("reference", {"inputs": "standardized", "augment": "strong"}),
    }

    def __init__(self, settings: Settings, *rest: Any) -> None:
        assert isinstance(settings, MoseSettings)
        self.mose = settings
        self.task = -1
        self.current: list[int] = []  # classes of the current task so far
        super().__init__(settings, *rest)

    def build_model(self, net: nn.Module) -> Model:
        return Experts(net, self.generators["init"])

    # ---------------------------------------------------------------- learning

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        self.meet(batch.y)
        task = -1 if batch.task is None else batch.task
        before = self.current if task == self.task else []
        self.task, self.current = task, sorted({*before, *batch.y.tolist()})
        report = {}
        for _ in range(self.settings.steps):
            new, old = self.parts(batch)
            loss = self.loss(self.views(new), self.views(old), report)
            self.descend(loss)
            report["loss"] = loss.detach()
        self.replay_memory.reservoir(batch.x, batch.y, self.generators["memory"])
        return report

    def parts(self, batch: Batch) -> tuple[Part, Part]:
        """N and P of the step: images of the current task, and older ones; raw."""
        x, y = batch.x.to(self.device), batch.y.to(self.device)
        n, replay, now = len(y), self.settings.replay, len(self.current)
        older = [c for c in self.replay_memory.filled if c not in self.current]
        first = now == self.classes
        own = self.drawn(self.current, replay if first else max(replay // 2 - n, 0))
        fresh = 0 if first else min(replay * now // self.classes, n)
        past = 0 if first else min(replay - fresh, PER_CLASS * self.classes)
        return _join((x, y), own), _join((x[:fresh], y[:fresh]), self.drawn(older, past))

    def drawn(self, classes: list[int], wanted: int) -> Part | None:
        """Images of the memory, uniformly from all of the classes; none if it has none."""
        memory = self.replay_memory
        slots = subsets.of_classes(memory.members, classes, wanted, self.generators["memory"])
        entries = memory.read(slots) if slots else {}
        return (entries["x"], entries["y"]) if slots else None

    def views(self, part: Part) -> Part:
        """Float views (4 n, ...) of n images, or 2 n where there are no mirrored ones."""
        x, y = as_float(part[0]), part[1]
        if self.mose.mirror and x.dim() == 4:
            x, y = torch.cat([x, x.flip(-1)]), y.repeat(2)
        return torch.cat([x, self.augmented(x)]), y.repeat(2)

    def loss(self, new: Part, old: Part, report: dict[str, torch.Tensor]) -> torch.Tensor:
        model = self.model
        assert isinstance(model, Experts)
        (x, y), n = _join(new, old), len(new[1])
        self.backbone_images += len(x)
        features = model.stages(x)
        among = losses.present(torch.tensor(self.current, device=self.device), self.classes)
        student = model.adapt(features[-1])
        total = x.new_zeros(())
        for i, h in enumerate(features):
            logits = model.classifiers[i](h)
            # In the first task this is the softmax over all classes: there are no others.
            total = total + losses.restricted_cross_entropy(logits[:n], y[:n], among)
            total = total + losses.supervised_contrastive(model.projections[i](h), y, self.mose.tau)
            if len(y) > n:
                total = total + self.mose.memory_weight * F.cross_entropy(logits[n:], y[n:])
        gaps = [losses.reverse_distillation(student, h) for h in features[:-1]]
        if gaps and self.mose.reverse:
            reverse = torch.stack(gaps).sum()
            report["reverse"] = reverse.detach()
            total = total + self.mose.reverse * reverse
        return total

    # ---------------------------------------------------------------- reading

    def own_readers(self) -> dict[str, Reader]:
        more = {"moe-head": self.read_all_heads, "moe-mean": self.read_all_means}
        return super().own_readers() | more

    def features(self, model: Model, x: torch.Tensor) -> torch.Tensor:
        """Eval-mode features (n, S d) of raw images: those of all experts, the last one's last."""
        assert isinstance(model, Experts)
        with evaluating(model):
            chunks = x.to(self.device).split(CHUNK)
            return torch.cat([torch.cat(model.stages(as_float(c)), 1) for c in chunks])

    def _by_expert(self, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """(n, S d) -> S times (n, d)."""
        return z.split(self.model.head.features, 1)

    def as_read(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        """The last expert's, but where all experts have a say."""
        alone = "moe" not in self.readout
        return super().as_read(model, self._by_expert(features)[-1] if alone else features)

    def read_head(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        return model.head(self._by_expert(features)[-1])

    def read_all_heads(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        """Mean of the logits of all experts."""
        assert isinstance(model, Experts)
        pairs = zip(model.classifiers, self._by_expert(features), strict=True)
        return torch.stack([classify(z) for classify, z in pairs]).mean(0)

    def read_mean(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        return self._to_means(model, features)[-1]

    def read_all_means(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        """Mean over the experts of minus the squared distance to their class means."""
        return self._to_means(model, features).mean(0)

    def _to_means(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        """Minus the squared distances of unit features to class means: (S, n, C)."""
        memory = self.replay_memory
        parts = self._by_expert(features)
        if not len(memory):
            return features.new_full((len(parts), len(features), self.classes), -torch.inf)
        if model not in self._means:
            old = self.features(model, memory.columns["x"][: len(memory)])
            y = memory.columns["y"][: len(memory)]
            each = [class_means(z, y, self.classes) for z in self._by_expert(old)]
            self._means[model] = torch.stack(each)
        return torch.stack([nearest_mean(*p) for p in zip(parts, self._means[model], strict=True)])

    # ---------------------------------------------------------------- state

    def state_dict(self) -> dict[str, torch.Tensor]:
        mine = {"task": torch.tensor(self.task), "current": torch.tensor(self.current)}
        return super().state_dict() | mine

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.task, self.current = int(state["task"]), state["current"].long().tolist()
        if any(not 0 <= c < self.classes for c in self.current):
            raise ValueError("the current task has classes that do not exist")


def _join(part: Part, more: Part | None) -> Part:
    if more is None:
        return part
    return torch.cat([part[0], more[0]]), torch.cat([part[1], more[1]])
