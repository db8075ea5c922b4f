"""OCM: online continual learning by mutual information maximisation (Guo et al., ICML 2022).

Cross-entropy learns only what separates the classes at hand. OCM also keeps the information that
features hold about images, by InfoNCE over all turns of an image (`ocil.learners.holistic`), and
trains the head on replayed images alone, where the classes are balanced. For a stream batch (x, y),
Aug drawn anew wherever it is written:

    first task   L = CE(W h(Aug(x)), y) + L_n(S_new)
    later        L = CE(W h(Aug(m)), y_m) + L_n(S_new) + L_uni(S_buf) + L_pre(S_pre)
                     + w MSE(W h(Aug(m)), W' h'(Aug(m)))  over the classes of finished tasks

with a replay batch (m, y_m), S_new of Rot(x) and Aug(Rot(x)), S_buf of Rot(m) and Aug(Rot(m)) in
one pass, and S_pre = Z Z'^T of Rot(m) for the weights now and those at the end of the last task.

| symbol      | here                                   | meaning                                  |
|-------------|----------------------------------------|------------------------------------------|
| h, W        | model.net, .head                       | feature extractor, linear head           |
| g, z        | model.projection                       | linear projection of unit length         |
| c           | settings.similarity, similarity_first  | factor of the similarities               |
| tau         | settings.tau                           | temperature of InfoNCE                   |
| h', g', W'  | teacher                                | the model at the end of the last task    |
| L_n         | holistic.paired_infonce                | on the stream                            |
| L_uni, L_pre| holistic.infonce                       | on the memory, and to the snapshot       |

Differs from the reference:

- The head covers the classes seen, and "finished" classes may come in any order.
- Aug is the common augmentation. Preset `reference` has on colour images the original's (`strong`),
  standardized images (by the data set's own deviation) and a ResNet-18 of full width that pools all
  of its last map. The turns, which are the method, are kept: images must be square.
- AdamW instead of Adam with L2, at its lr and beta2; on MNIST and digits held-out images chose.
- No gradient is computed through the snapshot: the updates are the same. As there, it stays in
  train mode and the first task replays nothing. Without task borders all is a first task.
- g has at most as many dimensions as h, and the slice may reach the last of the features.
- The averaged weights are read; `reference` reads the live ones, and so does MNIST.

Cost: 320 + 10 images forward and backward in the first task; later 320 + 2048 + 64, and 1024 + 64
forward through the snapshot. Similarities are 320^2, 2048^2, 1024^2, whatever the classes.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.errors import OcilError
from ocil.learners import holistic
from ocil.learners.learner import Report
from ocil.learners.presets import on_colour
from ocil.settings import setting


@dataclass(frozen=True)
class OcmSettings(holistic.HolisticSettings):
    distill: float = setting(1.0, search=(0.1, 5.0))
    """Weight of the squared difference to the snapshot's logits (w); 0 leaves it out."""
    beta2: float = 0.99
    """AdamW's decay of the squared gradients."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.beta2 < 1:
            raise OcilError(f"Setting beta2 is {self.beta2} but must be at least 0 and below 1.")


# The reference's factors by data set; digits as MNIST, its learning rate from held-out images.
_GREY = {"similarity_first": 0.5, "similarity": 0.5, "distill": 0.0}
_DATA: dict[str, dict[str, Any]] = {
    "digits": _GREY,
    "mnist": _GREY,
    "fashion-mnist": _GREY,
    "cifar10": {"similarity": 0.5},
    "cifar100": {},
    "tiny-imagenet": {"net": "resnet18-global"},
}


class Ocm(holistic.HolisticLearner[OcmSettings]):
    method = "ocm"
    title = "Mutual information maximisation"
    paper = "Guo et al., Online Continual Learning through Mutual Information Maximization"
    year = 2022
    needs_tasks = True
    needs_memory = True
    settings_type = OcmSettings
    presets = {  # noqa: RUF012
        "default": {"lr": 1e-3},
        "reference": {"lr": 1e-3, "ema": 0.0},
        **{
            f"{name}/{data}": own
            for name in ("default", "reference")
            for data, own in _DATA.items()
        },
        "default/digits": _GREY | {"lr": 8e-3, "ema": 0.9},
        "default/mnist": _GREY | {"lr": 2e-3, "readout": "head"},
        "reference/mnist": _GREY | {"inputs": "standardized"},
        **on_colour("reference", holistic.COLOUR, _DATA),
    }

    def build_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().build_optimizer()
        for group in optimizer.param_groups:
            if "betas" in group:
                group["betas"] = (group["betas"][0], self.settings.beta2)
        return optimizer

    def loss_terms(self, x: Tensor, y: Tensor) -> Report:
        if self.teacher and self.settings.replay and len(self.memory):
            return self.later_terms(x, y)
        z, f = self.embed(holistic.turned_pairs(x, self.augmented).flatten(0, 2))
        return {
            "stream": holistic.paired_infonce(
                self.compare(z, f, self.settings.similarity_first), y
            ),
            "entropy": F.cross_entropy(self.logits(self.augmented(x)), y),
        }

    def later_terms(self, x: Tensor, y: Tensor) -> Report:
        assert isinstance(self.teacher, holistic.HolisticModel)
        snapshot = self.teacher.train()  # as the reference: batch norm uses the batch
        wanted = min(self.settings.replay, self.settings.replay_per_class * self.classes)
        old = self.memory.draw(wanted, self.generators["memory"], self.settings.retrieval)
        m, y_m, c = old["x"], old["y"], self.settings.similarity
        stream, memory = (holistic.turned_pairs(images, self.augmented) for images in (x, m))
        z, f = self.embed(torch.cat([stream.flatten(0, 2), memory.flatten(0, 2)]))
        z, z_m = z.tensor_split([2 * holistic.TURNS * len(x)])
        f, f_m = f.tensor_split([2 * holistic.TURNS * len(x)])
        logits = self.logits(self.augmented(m))
        parts = {
            "stream": holistic.paired_infonce(self.compare(z, f, c), y),
            "memory": holistic.infonce(self.compare(z_m, f_m, c), y_m.repeat(2)),
            "entropy": F.cross_entropy(logits, y_m),
        }
        plain = (slice(None), 0)  # of (16, 2, m, ...): turned, not augmented
        z_now = z_m.unflatten(0, memory.shape[:3])[plain].flatten(0, 1)
        z_then = self.recall(snapshot.embed, memory[plain].flatten(0, 1))[0]
        parts["snapshot"] = holistic.infonce(z_now @ z_then.T / self.settings.tau, y_m)
        if self.settings.distill:
            then = self.recall(snapshot, self.augmented(m))  # classes of finished tasks
            parts["distill"] = self.settings.distill * F.mse_loss(logits[:, : then.shape[1]], then)
        return parts

    @torch.no_grad()
    def recall(self, snapshot: Any, x: Tensor) -> Any:
        """What the snapshot makes of images, counted."""
        self.backbone_images += len(x)
        return snapshot(x)

    def end_task(self, task: int, images: Tensor, labels: Tensor) -> None:
        self.keep_teacher()
