"""ER: experience replay (Rolnick et al. 2019; Chaudhry et al. 2019, arXiv 1902.10486).

For every stream batch X of n images draw m images from a reservoir sample of the stream and take
one step on the mean cross-entropy of both in one pass,

    L = 1 / (m + n) * sum_i CE(W h(aug(x_i)) + b, y_i),

then offer X, as it came, to the reservoir. No distillation, no class masking, no task identity:
the floor that every other replay method has to beat.

| symbol | here           | meaning                         |
|--------|----------------|---------------------------------|
| m      | settings.replay| images replayed per step        |
| n      | settings.batch | images of the stream per batch  |
| h      | model.net      | feature extractor               |
| W, b   | model.head     | linear head over classes seen   |

Differs from the reference code in that the head covers the classes seen so far only, and that the
very first batch is learned as well (`skip_first` restores the reference; preset `reference`).

Cost: m + n images forward and backward, m + v n with v `views` of every stream image.
"""

from dataclasses import dataclass

import torch.nn.functional as F

from ocil.learners.learner import Report
from ocil.learners.presets import on_colour, with_large_anchor
from ocil.learners.replay import ReplayLearner
from ocil.settings import Settings, setting
from ocil.stream import Batch


@dataclass(frozen=True)
class ErSettings(Settings):
    skip_first: bool = False
    """Only store the very first batch, as the reference code does."""
    views: int = setting(1, low=1)
    """Views of each stream image in a gradient step; of several the last is not augmented."""


PRESETS = {
    "default": {},  # rates and averages are the data set's, the same for all methods
    "reference": {"skip_first": True, "ema": 0.0, "lr": 5e-4},
    **on_colour("reference", {"width": 64}),
}


class Er(ReplayLearner[ErSettings]):
    method = "er"
    title = "Experience replay"
    paper = "Chaudhry et al., On Tiny Episodic Memories in Continual Learning"
    year = 2019
    settings_type = ErSettings
    presets = with_large_anchor(PRESETS)

    def step(self, batch: Batch) -> Report:
        report = {}
        if not (self.settings.skip_first and self.memory.capacity and not len(self.memory)):
            for _ in range(self.updates):
                x, y = self.with_replay(batch)
                x, y = self.augment_views(x, y, len(batch.y), self.settings.views)
                loss = F.cross_entropy(self.logits(x), y)
                report["loss"] = self.optimizer_step(loss)
        self.remember(batch)
        return report
