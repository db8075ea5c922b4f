"""BiC+AC: BiC with auxiliary classifiers (Szatkowski et al., ICML 2025, arXiv 2403.07404).

Layers in the middle forget less than the last. Each of them gets a classifier of its own, all are
trained with BiC's loss and have their own bias pairs (see `bic`), gradients reach the net from
each, and the most confident one answers:

    L = sum_i w_i [ CE(z^i, y) + 2 KD(z^i) ],  w rising from first to last, 1 for the last layer,
    answer = softmax(z^i*) with i* = argmax_i max_c softmax(z^i)_c.

On the ResNet there are six, behind every block but the first and the last; on the MLP one behind
every hidden layer but the last. A map enters its classifier as p = a maxpool2(h) + (1 - a)
avgpool2(h), flattened, with the scalar a learned.

| symbol       | here                         | meaning                                     |
|--------------|------------------------------|---------------------------------------------|
| z^i          | all_corrected (L, n, C)      | corrected logits, the last layer's last     |
| w_i          | settings.first, .last        | ends of the ladder of weights               |
| a            | model.branches[i].mix        | share of the maximum in the pooling         |
| 2            | settings.distill             | weight of the distillation                  |

Differs from the reference, made for many epochs: as `bic`, and

- one `a` a layer serves all classes; the reference has heads, and an `a`, for each task;
- the weights are those of the end from the start; with several epochs they rise from 0.01 epoch by
  epoch as in the reference (`ramp`). 0.3 to 0.9 is its ladder for ResNet-18 (steps rounded to
  0.05), 0.15 to 0.9 in preset `reference` that for CIFAR;
- early exits, which save nothing in a batch, and the clipping of gradients at 100 are left out;
- on MNIST held-out images chose the averaged last classifier (`ema-corrected`).

Cost: the passes of `bic`. Linear layers behind maps are wide: on 32 pixels 256 x width inputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocil.learners.bic import OFFLINE, OFFLINE_DATA, ONLINE, Bic, BicSettings
from ocil.learners.model import Model, evaluating
from ocil.learners.readouts import Features, Readout
from ocil.nets.heads import GrowingLinear
from ocil.settings import setting
from ocil.stream import Batch

START = 0.01  # weight of every auxiliary classifier in the first of several epochs


@dataclass(frozen=True)
class BicAcSettings(BicSettings):
    first: float = setting(0.3, search=(0.05, 1.0))
    """Weight of the loss of the first auxiliary classifier (w); linear in between."""
    last: float = setting(0.9, search=(0.3, 3.0))
    """Weight of the loss of the last auxiliary classifier; a single one gets the mean."""
    ramp: bool = True
    """With several epochs: these weights rise linearly from 0.01 to their values."""


PRESETS = {
    **ONLINE,
    "default/mnist": {"lr": 2e-3, "distill": 1.0, "readout": "ema-corrected"},
    "reference": OFFLINE | {"epochs": 200, "weight_decay": 0.0, "first": 0.15},
    **OFFLINE_DATA,
}


class Branch(nn.Module):
    """An auxiliary classifier on a map (n, c, h, w) or a vector (n, d) of `shape`."""

    def __init__(self, shape: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        if len(shape) > 1:
            self.mix = nn.Parameter(torch.rand((), generator=generator))
        self.head = GrowingLinear(self.pooled(torch.zeros(1, *shape)).shape[1], generator)

    def pooled(self, h: Tensor) -> Tensor:
        h = h.float()  # a map may come in 16 bits
        if h.dim() == 2:
            return h
        most, mean = F.max_pool2d(h, 2, ceil_mode=True), F.avg_pool2d(h, 2, ceil_mode=True)
        return torch.lerp(mean, most, self.mix).flatten(1)

    def forward(self, h: Tensor) -> Tensor:
        return self.head(self.pooled(h))


class Branched(Model):
    """Net and head with a branch at every tap."""

    def __init__(self, net: nn.Module, generator: torch.Generator, shape: Sequence[int]) -> None:
        super().__init__(net, generator)
        with evaluating(net), torch.no_grad():
            maps = taps(net, torch.zeros(1, *shape))[:-1]
        self.branches = nn.ModuleList(Branch(h.shape[1:], generator) for h in maps)

    def outputs(self, x: Tensor) -> Tensor:
        """Logits of the branches beside the features: (n, (L - 1) C + d)."""
        *maps, features = taps(self.net, x)
        logits = [branch(h) for branch, h in zip(self.branches, maps, strict=True)]
        return torch.cat([*logits, features], 1)


def taps(net: Any, x: Tensor) -> list[Tensor]:
    """What the branches read, and last the features (n, d)."""
    return net.forward_blocks(x)[1:] if hasattr(net, "forward_blocks") else net.forward_stages(x)


class BicAc(Bic[BicAcSettings]):
    method = "bic-ac"
    title = "Bias correction with auxiliary classifiers"
    paper = (
        "Szatkowski et al., Improving Continual Learning Performance and Efficiency with "
        "Auxiliary Classifiers"
    )
    year = 2025
    own_readout = "confident"
    settings_type = BicAcSettings
    presets = PRESETS
    drops = (0.3, 0.6, 0.8)

    def build_model(self, net: nn.Module) -> Model:
        model = Branched(net, self.generators["init"], self.shape)
        self.classifiers = len(model.branches) + 1
        return model

    def forward_features(self, model: Model, x: Tensor) -> Tensor:
        assert isinstance(model, Branched)
        return model.outputs(x)

    def classified(self, model: Model, outputs: Tensor) -> Tensor:
        d, branches = model.head.features, self.classifiers - 1
        final = model.head(outputs[:, -d:])
        others = outputs[:, :-d].reshape(len(outputs), branches, final.shape[1]).transpose(0, 1)
        return torch.cat([others, final[None]])

    def weights(self, batch: Batch) -> Tensor:
        ends, branches = (self.settings.first, self.settings.last), self.classifiers - 1
        ladder = torch.linspace(*ends, branches) if branches != 1 else torch.tensor([sum(ends) / 2])
        if self.settings.ramp and batch.epochs > 1:
            ladder = START + batch.epoch / (batch.epochs - 1) * (ladder - START)
        return torch.cat([ladder, torch.ones(1)]).to(self.device)

    def readouts_in(self, space: str, model: Model) -> dict[str, Readout]:
        """No class means: what is read here is more than features."""

        def points(features: Features) -> Tensor:  # without the logits of the branches
            return features[space][:, -model.head.features :]

        def confident(features: Features) -> Tensor:
            return most_confident(self.corrected(features, space))

        return {
            "head": Readout(lambda f: model.head(points(f)), points),
            "corrected": Readout(lambda f: self.corrected(f, space)[-1], points),
            "confident": Readout(confident, points),
        }


def most_confident(logits: Tensor) -> Tensor:
    """Log-probabilities of the classifier that is surest of its answer, image by image.

    i* = argmax_i max_c softmax(o^i)_c; logits (L, n, C) -> (n, C).
    """
    log_p = logits.log_softmax(2)
    surest = log_p.amax(2).argmax(0)  # (n,)
    return log_p[surest, torch.arange(logits.shape[1], device=logits.device)]
