"""SCR: supervised contrastive replay (Mai et al., CVPR workshops 2021, arXiv 2103.13885).

There is no classifier to be biased towards the newest classes. Stream and replayed images, each as
it is and augmented once, are drawn together by class and apart otherwise,

    L = -1/2n sum_i 1/|P_i| sum_{p in P_i} log( e_ip / sum_{j != i} e_ij ),
    e_ij = exp(z_i.z_j / tau)

over the 2n views with z = g(h(x)) / |g(h(x))|. To predict, g is dropped and the closest of the
class means of the memory decides, all features of unit length:

    c(x) = argmin_c | h(x)/|h(x)| - mu_c |,   mu_c the mean direction of class c of the memory.

| symbol | here                          | meaning                                    |
|--------|-------------------------------|--------------------------------------------|
| h, g   | model.net, model.project      | feature extractor, projection (two layers) |
| tau    | settings.tau                  | temperature                                |
| n      | settings.replay, .batch       | images replayed and of the stream together |
| P_i    | losses.supervised_contrastive | the other views of the class of i          |
| mu_c   | read-outs mean, ema-mean      | class means of the memory                  |

Differs from the reference code:

- Both views share one forward pass, hence one set of batch-norm statistics.
- The first batch is learned as well (`skip_first` restores that).
- 64 images are replayed, with AdamW; preset `reference` has 100, SGD at 0.1, tau 0.1, the review.
- The review goes through the memory once more at a task's end with a tenth of the gradient; it
  needs tasks (`review`). As there, a memory smaller than a batch is not reviewed.
- A class that has left the memory cannot be the answer.

Cost: 2 (10 + 64) images forward and backward; class means need a pass over the memory when asked.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ocil import losses
from ocil.learners.learner import Report
from ocil.learners.model import Model, Projected
from ocil.learners.readouts import Readout
from ocil.learners.replay import ReplayLearner, as_float
from ocil.settings import Settings, setting
from ocil.stream import Batch


@dataclass(frozen=True)
class ScrSettings(Settings):
    tau: float = setting(0.07, above=0, search=(0.03, 0.5))
    """Temperature of the contrastive loss."""
    projection: int = setting(128, low=1)
    """Size of the projected features."""
    skip_first: bool = False
    """Only store the very first batch, as the reference code does."""
    review: bool = False
    """At the end of a task go through the memory once, in batches of `replay`, with a tenth of the
    gradient, as the reference code does."""


REFERENCE = {
    "tau": 0.1, "replay": 100, "optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "ema": 0.0,
    "skip_first": True, "review": True,
}  # fmt: skip


class Scr(ReplayLearner[ScrSettings]):
    method = "scr"
    title = "Supervised contrastive replay"
    paper = (
        "Mai et al., Supervised Contrastive Replay: Revisiting the Nearest Class Mean Classifier"
    )
    year = 2021
    needs_memory = True
    own_readout = "mean"
    settings_type = ScrSettings
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {},
        "default/digits": {"lr": 1e-3, "ema": 0.9},
        "default/mnist": {"lr": 1e-3, "tau": 0.2},
        "reference": REFERENCE,
    }

    def __init__(self, settings: ScrSettings, *given: Any) -> None:
        self.needs_tasks = settings.review
        super().__init__(settings, *given)

    def build_model(self, net: torch.nn.Module) -> Model:
        return Projected(net, self.settings.projection, self.generators["init"], layers=2)

    def step(self, batch: Batch) -> Report:
        report = {}
        if not (self.settings.skip_first and not len(self.memory)):
            for _ in range(self.updates):
                loss = self.loss(*self.with_replay(batch))
                report["loss"] = self.optimizer_step(loss)
        self.remember(batch)
        return report

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """L of raw images x (n, ...) of classes y (n,)."""
        z = self.logits(torch.cat([as_float(x), self.augmented(x)]))  # (2n, out)
        return losses.supervised_contrastive(z, y.repeat(2), self.settings.tau)

    def end_task(self, task: int, images: Tensor, labels: Tensor) -> None:
        """The review: whole batches alone, what is left over of the memory is left out."""
        if not self.settings.review or not self.settings.replay:
            return
        self.cache.clear()
        order = torch.randperm(len(self.memory), generator=self.generators["memory"])
        for picked in order.split(self.settings.replay):
            if len(picked) == self.settings.replay:
                held = self.memory.read(picked.tolist())
                self.optimizer_step(self.loss(held["x"], held["y"]) / 10)

    def readouts_in(self, space: str, model: Model) -> dict[str, Readout]:
        return {"mean": self.mean_readout(space)}
