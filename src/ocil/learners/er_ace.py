"""ER-ACE: replay with an asymmetric cross-entropy (Caccia et al., ICLR 2022, arXiv 2104.05025).

New classes enter among features that already serve the old ones. A softmax over all classes pushes
every stream image away from all old classes at once, and their representations with it. ER-ACE
lets the stream tell only its own classes apart and leaves the rest to the replay. For a stream
batch X with classes C(X) and a replayed batch M

    L = 1/n sum_{i in X} CE(o_i, y_i; C(X)) + 1/m sum_{i in M} CE(o_i, y_i; all classes seen),

    CE(o, y; A) = -log( exp(o_y) / sum_{c in A} exp(o_c) ),   o = W h(aug(x)) + b,

then X is offered, as it came, to the reservoir. A batch of one class gives the stream no gradient.

| symbol | here            | meaning                          |
|--------|-----------------|----------------------------------|
| m, n   | settings.replay, .batch | images replayed, of the stream |
| h      | model.net       | feature extractor                |
| W, b   | model.head      | linear head over classes seen    |
| C(X)   | losses.present  | classes of the stream batch      |

Differs from the reference code in that both batches share one forward pass, hence one set of
batch-norm statistics, as in `er`, and that the head has no columns for classes never seen. Preset
`reference` has the augmentation of published re-runs on colour images and no averaged weights. The
live head counts by default: new classes rise through replay alone, and an average comes late.

Cost: m + n images forward and backward, as ER.
"""

from typing import Any, ClassVar

import torch.nn.functional as F

from ocil import losses
from ocil.learners.learner import Report
from ocil.learners.presets import on_colour
from ocil.learners.replay import ReplayLearner
from ocil.settings import Settings
from ocil.stream import Batch


class ErAce(ReplayLearner[Settings]):
    method = "er-ace"
    title = "Replay with an asymmetric cross-entropy"
    paper = "Caccia et al., New Insights on Reducing Abrupt Representation Change in Online CL"
    year = 2022
    settings_type = Settings
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        # New classes rise through replay alone, slowly: averaged weights are late for them.
        "default": {"readout": "head"},
        "default/digits": {"lr": 4e-3, "ema": 0.9},
        "default/mnist": {"lr": 1e-3},
        "default/fashion-mnist": {"lr": 1e-3},
        "reference": {"ema": 0.0, "readout": "head", "lr": 5e-4},
        **on_colour("reference", {"augment": "partial", "width": 64}),
    }

    def step(self, batch: Batch) -> Report:
        report = {}
        for _ in range(self.updates):
            x, y = self.with_replay(batch)
            logits, old = self.logits(self.augmented(x)), len(y) - len(batch.y)
            among = losses.present(y[old:], self.classes)
            loss = losses.restricted_cross_entropy(logits[old:], y[old:], among)
            if old:
                loss = loss + F.cross_entropy(logits[:old], y[:old])
            report["loss"] = self.optimizer_step(loss)
        self.remember(batch)
        return report
