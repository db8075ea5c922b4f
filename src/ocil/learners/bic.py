"""BiC: bias correction (Wu et al., CVPR 2019, arXiv 1905.13260).

For a stream with known task borders. A head trained on many new and few stored old images
over-scores the new classes. A tenth of the memory holds the first images of each class, is never
trained on, and tells by how much: with the logits o = W h(x) + b, the copy o' of the model from
before the task, n old and m new classes,

    while a task lasts   z = b(o), z' = b(o') with the pairs of before,
                         L = CE(z, y) + lambda CE(softmax(z'/T), softmax(z_old/T))
                         on the stream batch and the replayed images;
    at its end           b(o_c) = alpha o_c + beta for its classes c, one pair (alpha, beta)
                         minimising CE on the held-out images of all classes (`fit_bias`).

| symbol      | here                 | meaning                                              |
|-------------|----------------------|------------------------------------------------------|
| n           | old                  | classes of the tasks before                          |
| alpha, beta | bias (2, L, C)       | the pair of each class's task; L = 1 classifier here |
| o'          | teacher              | model at the last border, eval mode, no gradient     |
| T           | settings.temperature | softens both in the distillation                     |
| lambda      | settings.distill     | weight of the distillation                           |

Differs from the reference, made for many epochs a task:

- The paper weighs both terms by 1 - n / (n + m) and n / (n + m) (`weighting` convex), which leaves
  little to the labels when classes are many; a sum is what the authors of `bic-ac` use.
- Replay comes from a reservoir; there is no exemplar set that is rebuilt and mixed into the data.
- The held-out images are a tenth of the memory, in equal shares, the first of each class. With more
  classes than places some have none. What is held out stays out in all epochs.
- The pair comes from one full-batch descent without augmentation, whose best iterate counts; of
  the weights the latest count, not those of the best epoch.
- The distillation is the divergence, which has the gradient of the cross-entropy.
- The averaged weights get a pair of their own for the newest task, since their logits lag behind.
- Preset `reference` has the paper's settings for CIFAR-100 (250 epochs, SGD, a new optimiser a
  task, padded crops, Kaiming's weights, standardized images), batches of 128 with the share of
  memory that mixing gives. Its net is ours: there is no ResNet-32.

Cost: batch + replay images forward and backward, from the second task on as many forward through
the teacher; at a task's end one pass over the held-out images for each set of weights.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import losses
from ocil.errors import OcilError
from ocil.learners.learner import Report
from ocil.learners.model import Model
from ocil.learners.parts import count_bytes
from ocil.learners.presets import mixed_in, on_colour
from ocil.learners.readouts import Features, Readout
from ocil.learners.replay import ReplayLearner
from ocil.memory import Memory
from ocil.memory.holdout import HeldOut
from ocil.rows import without
from ocil.settings import Settings, setting
from ocil.stream import Batch


@dataclass(frozen=True)
class BicSettings(Settings):
    held: float = setting(0.1, above=0, below=1)
    """Share of the memory that holds images for the bias correction and is never replayed."""
    weighting: Literal["convex", "sum"] = "sum"
    """CE + distill * KD, or (1 - n/(n+m)) CE + n/(n+m) KD as in the paper."""
    distill: float = setting(2.0, search=(0.3, 10.0))
    """Weight of the distillation, where the weighting is sum."""
    temperature: float = setting(2.0, above=0, search=(1.0, 4.0))
    """Temperature of the distillation (T)."""
    renew: bool = False
    """Begin every task with a new optimiser, without the moments of before."""
    schedule: Literal["constant", "steps"] = "constant"
    """Learning rate over the epochs of a task; steps takes a tenth of it three times."""
    offer_every_epoch: bool = setting(False, was=("reoffer",))
    """With several epochs: offer an image to the memory in each, not in the first alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory == 1:
            raise OcilError("BiC divides its memory, but memory is 1; give 2 or more.")


ONLINE: dict[str, dict[str, Any]] = {
    "default": {"lr": 1e-3},
    "default/digits": {"lr": 8e-3, "ema": 0.9},
    "default/mnist": {"lr": 1e-3, "distill": 1.0, "readout": "corrected"},
    "default/fashion-mnist": {"lr": 1e-3},
    "default/tiny-imagenet": {"distill": 3.0},  # for many tasks
}
# Many epochs. Of a shuffled batch of 128 new images and exemplars, 34 are exemplars on average.
OFFLINE = {
    "optimizer": "sgd", "lr": 0.1, "schedule": "steps", "batch": 94, "replay": 34, "ema": 0.0,
    "augment": "partial", "renew": True,
}  # fmt: skip
OFFLINE_DATA = on_colour("reference", {"init": "kaiming", "inputs": "standardized"}) | mixed_in(
    "reference", 128, {"cifar10": 10_000, "cifar100": 5_000}, share=0.9
)
PRESETS = {
    **ONLINE,
    "reference": OFFLINE
    | {"epochs": 250, "momentum": 0.9, "weight_decay": 2e-4, "weighting": "convex"},
    **OFFLINE_DATA,
}


class Bias(dict[str, Tensor]):
    """alpha and beta (2, L, C) for each set of weights."""

    holds_samples: ClassVar[bool] = False

    def __init__(self, names: Iterable[str], classifiers: int, device: torch.device) -> None:
        super().__init__({name: torch.empty(2, classifiers, 0, device=device) for name in names})

    def add(self, count: int) -> None:
        """New classes have alpha = 1 and beta = 0."""
        for name, bias in self.items():
            fresh = bias.new_tensor([1.0, 0.0])[:, None, None].expand(2, bias.shape[1], count)
            self[name] = torch.cat([bias, fresh], 2)

    @property
    def nbytes(self) -> int:
        return count_bytes(self.values())

    def state_dict(self, samples: bool = True) -> Mapping[str, Tensor]:
        return self

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        for name, bias in self.items():
            if state[name].shape != (2, bias.shape[1], classes):
                raise ValueError(f"the bias does not have one pair for each of {classes} classes")
            self[name] = state[name].to(bias.device)

    def forget(self, label: int) -> None:
        self.update({name: without(bias, label, 2) for name, bias in self.items()})


B = TypeVar("B", bound=BicSettings)


class Bic(ReplayLearner[B]):
    method = "bic"
    title = "Bias correction"
    paper = "Wu et al., Large Scale Incremental Learning"
    year = 2019
    needs_tasks = True
    needs_memory = True
    memory_policy = "reservoir, a tenth held out evenly over classes"
    own_readout = "corrected"
    settings_type = BicSettings
    presets = PRESETS
    classifiers = 1  # L
    drops = (0.4, 0.6, 0.8)  # shares of a task's epochs, schedule "steps"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.bias = self.parts["bias"] = Bias(self.spaces, self.classifiers, self.device)

    def build_memory(self, capacity: int | None) -> Memory:
        """The memory without the part that is held out, which is a memory of its own."""
        assert capacity is not None
        part = min(capacity - 1, math.ceil(self.settings.held * capacity))
        self.held = self.parts["held"] = HeldOut(part, self.device)
        return super().build_memory(capacity - part)

    def classified(self, model: Model, outputs: Tensor) -> Tensor:
        """Logits (L, n, C) of all classifiers."""
        return model.head(outputs)[None]

    def weights(self, batch: Batch) -> Tensor:
        """Weight of each classifier's loss, (L,)."""
        return torch.ones(1, device=self.device)

    def begin_task(self, task: int) -> None:
        if self.classes:
            self.keep_teacher()
        if self.settings.renew:
            self.optimizer.state.clear()

    @property
    def old(self) -> int:
        """Classes of the tasks before (n)."""
        return self.teacher.head.classes if self.teacher else 0

    def grow(self, classes: int) -> None:
        super().grow(classes)
        self.bias.add(classes - self.classes)

    def step(self, batch: Batch) -> Report:
        batch = self.without_held(batch)
        self.drop_lr(batch, self.drops if self.settings.schedule == "steps" else ())
        report = {}
        for _ in range(self.updates):
            x, y = self.with_replay(batch)
            if len(y) > 1:  # at the start all may be held out, and batch norm needs two
                loss = self.loss(self.augmented(x), y, self.weights(batch))
                report["loss"] = self.optimizer_step(loss)
        if len(batch.y) and (batch.epoch == 0 or self.settings.offer_every_epoch):
            self.remember(batch)
        return report

    def without_held(self, batch: Batch) -> Batch:
        """The batch without images held out: now, or in a later epoch those that were."""
        held, draw = self.held, self.generators["memory"]
        if batch.epoch:
            kept = [i for i, image in enumerate(batch.x) if image not in held]
        else:
            pairs = zip(batch.x, batch.y, strict=True)
            kept = [i for i, p in enumerate(pairs) if not held.hold(*p, self.classes, draw)]
        return replace(batch, x=batch.x[kept], y=batch.y[kept])

    def loss(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """sum_i w_i L^i over the classifiers, on augmented images (n, ...)."""
        bias, old, t = self.bias["live"], self.old, self.settings.temperature
        z = self._corrected(self.model, x, bias)  # (L, n, C)
        flat = F.cross_entropy(z.flatten(0, 1), y.repeat(len(z)), reduction="none")
        ce = flat.view(len(z), -1).mean(1)  # (L,)
        if self.teacher is None:
            return weights @ ce
        with torch.no_grad():
            wanted = self._corrected(self.teacher, x, bias[..., :old])
        # The shared loss carries the factor T^2, which BiC has not.
        pairs = zip(z[..., :old], wanted, strict=True)
        kd = torch.stack([losses.distillation(a, b, t) for a, b in pairs]) / t**2
        if self.settings.weighting == "sum":
            return weights @ (ce + self.settings.distill * kd)
        share = old / max(self.classes, old + 1)  # a task without new classes still learns
        return weights @ ((1 - share) * ce + share * kd)

    def _corrected(self, model: Model, x: Tensor, bias: Tensor) -> Tensor:
        self.backbone_images += len(x)
        return bias_corrected(self.classified(model, self.forward_features(model, x)), bias)

    @torch.no_grad()
    def end_task(self, task: int, images: Tensor, labels: Tensor) -> None:
        """Fit the pair of the task's classes on the held-out images, for both sets of weights."""
        self.cache.clear()
        if not 0 < self.old < self.classes or not len(self.held):
            return
        x, y = (self.held.columns[name][: len(self.held)] for name in ("x", "y"))
        before = self.bias["live"]
        for name, model in self.spaces.items():
            self.backbone_images += len(x)
            logits = self.classified(model, self.encode(model, x))
            self.bias[name] = fit_bias(logits, y, before, self.old)

    def readouts_in(self, space: str, model: Model) -> dict[str, Readout]:
        corrected = Readout(lambda f: self.corrected(f, space)[-1], lambda f: f[space])
        return super().readouts_in(space, model) | {"corrected": corrected}

    def corrected(self, features: Features, space: str) -> Tensor:
        """Corrected logits (L, n, C) of all classifiers."""
        logits = self.classified(self.spaces[space], features[space])
        return bias_corrected(logits, self.bias[space])


def bias_corrected(logits: Tensor, bias: Tensor) -> Tensor:
    """b(o) = alpha_c o_c + beta_c: logits (L, n, C), [alpha, beta] (2, L, C) -> (L, n, C)."""
    return logits * bias[0, :, None] + bias[1, :, None]


def fit_bias(
    logits: Tensor, y: Tensor, bias: Tensor, old: int, *,
    steps: int = 200, lr: float = 0.1, momentum: float = 0.9, decay: float = 0.1,
) -> Tensor:  # fmt: skip
    """The pair (alpha, beta) of the classes from number `old` on; those before keep theirs.

    Minimises, for each classifier on its own, by gradient descent over all n images from (1, 0),

        mean_i CE([b(o_old), alpha o_new + beta]_i, y_i) + decay beta^2 / 2   (section 4.2).

    With r = softmax - one-hot on the new columns the gradients are mean_i sum_c r_ic o_ic and
    mean_i sum_c r_ic + decay beta. Of all iterates the one of least loss is returned: where the
    logits are so large that the descent overshoots, it can then do no harm.

    logits (L, n, C), y (n,), bias (2, L, C) -> bias (2, L, C).
    """
    n, classes = len(y), logits.shape[2]
    fixed, fresh = bias_corrected(logits, bias)[..., :old], logits[..., old:]
    target = F.one_hot(y, classes).to(logits.dtype)  # (n, C)
    start = bias.new_tensor([1.0, 0.0])[:, None].repeat(1, len(logits))  # (2, L)
    pair, velocity, best = start, torch.zeros_like(start), start
    least = torch.full_like(start[0], torch.inf)  # (L,)
    for _ in range(steps + 1):
        alpha, beta = pair[:, :, None, None]
        log_p = torch.cat([fixed, alpha * fresh + beta], 2).log_softmax(2)
        loss = -(log_p * target).sum((1, 2)) / n + decay * pair[1].square() / 2
        best = torch.where(loss < least, pair, best)
        least = torch.minimum(loss, least)
        r = log_p[..., old:].exp() - target[:, old:]
        slope = torch.stack([(r * fresh).sum((1, 2)), r.sum((1, 2))]) / n
        slope[1] += decay * pair[1]
        velocity = momentum * velocity + slope
        pair = pair - lr * velocity
    fitted = best[:, :, None].expand(-1, -1, classes - old)
    return torch.cat([bias[..., :old], fitted], 2)
