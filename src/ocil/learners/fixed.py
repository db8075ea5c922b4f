"""What methods on a fixed encoder share: nothing is trained, every sample is counted once.

The encoder (`ocil.learners.encoder`) is any network as it starts, or a frozen module of your own. A
second epoch has nothing new and is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ocil import nets
from ocil.errors import OcilError
from ocil.learners import build
from ocil.learners.encoder import Encoder
from ocil.learners.learner import Learner, Report, S
from ocil.learners.model import Headless
from ocil.learners.parts import Weights
from ocil.learners.readouts import Centroids, Features, Readout
from ocil.memory import Memory
from ocil.nets.patches import PatchSettings
from ocil.nets.random_features import RandomSettings
from ocil.settings import Settings, setting
from ocil.stream import Batch


@dataclass(frozen=True)
class FixedSettings(Settings):
    anchor: Literal["none"] = "none"
    """There is no other space: the method itself is what an anchor is."""
    inputs: Literal["unit", "standardized"] = "unit"
    """Images as the net sees them: from 0 to 1, or by mean and deviation of the data set's training
    images; patches and random scale by the first samples anyway."""
    memory: int | None = None
    """Images kept beside the statistics, none by default."""
    lr: float = setting(5e-4, above=0, costs=False)
    """Learning rate: of no use here, nothing is trained."""
    ema: float = setting(0.995, below=1)
    """Decay of an average of weights: of no use here, they do not move."""
    net: str = "patches"
    """Fixed encoder: patches (images), random (vectors), identity, or another net as it starts."""
    patches: PatchSettings = setting(PatchSettings(), only={"net": ["patches"]})
    random: RandomSettings = setting(RandomSettings(), only={"net": ["random"]})


class FixedLearner(Learner[S]):
    """A method writes `restart`, `count`, `uncount`, and its read-outs of the features "fixed"."""

    memory_policy = "none"
    settings_type = FixedSettings

    def __init__(
        self,
        settings: S,
        shape: Sequence[int],
        generators: Mapping[str, torch.Generator],
    ) -> None:
        super().__init__(settings, shape, generators)
        options = getattr(settings, settings.net, None)
        net = build.network(settings, self.shape, generators["init"], options)
        self.model = Headless(net, generators["init"]).to(self.device).requires_grad_(False).eval()
        self.dim = self.model.head.features
        self.gradient_steps = 0
        self.parts["model"] = Weights(self.model)
        self.encoder = Encoder(net, self.device)
        self.fixed = {"fixed": self.encoder}
        if isinstance(net, nets.Fitted):
            self.parts["first"] = self.encoder.first
        build.check_memory(self.method, self.needs_memory, settings.memory)
        if settings.jury or settings.effort != "fixed":
            raise OcilError(
                f"{self.method} trains nothing: leave jury and effort out; it tells how good it is "
                "by leaving out one sample at a time."
            )
        if self.memory_policy == "none" and settings.memory is not None:
            raise OcilError(
                f"{self.method} keeps no memory, but memory is {settings.memory}; leave it out."
            )
        self.memory = Memory(settings.memory or 0, self.device)
        if settings.memory is not None:
            self.parts["memory"] = self.memory

    # ---------------------------------------------------------------- learning

    def restart(self) -> None:
        """Forget all statistics: the encoder is another one."""
        raise NotImplementedError

    def count(self, z: Tensor, y: Tensor) -> None:
        """Add features z (n, d) of classes y (n,) to the statistics."""
        raise NotImplementedError

    def uncount(self, z: Tensor, y: Tensor) -> None:
        """Take features z (n, d) of classes y (n,) back out of the statistics."""
        raise NotImplementedError

    def correct(self, x: Tensor, y: Tensor, new: Tensor | None = None) -> None:
        self.encoder.correct((self.restart, self.count, self.uncount), x, y, new)

    @torch.no_grad()
    def step(self, batch: Batch) -> Report:
        if batch.epoch:
            return {}
        self.memory.reservoir(batch.x, batch.y, self.generators["memory"])
        anew, x, y = self.encoder.take(batch.x.to(self.device), batch.y.to(self.device))
        if anew:
            self.restart()
        self.backbone_images += len(x)
        self.count(self.encoder.encode(x), y)
        return {}

    # ---------------------------------------------------------------- reading

    def features(self, x: Tensor) -> Features:
        return Features(lambda _: self.encoder.encode(x))

    def held_features(self) -> tuple[Tensor, Tensor]:
        """Features (m, d) and class ids (m,) of all that the memory holds."""
        filled = slice(len(self.memory))
        columns = self.memory.columns
        return self.encoder.encode(columns["x"][filled]), columns["y"][filled]

    def centroids(self) -> Centroids | None:
        own = self.readouts()[self.readout].centroids
        return own() if own else None


def plain(
    scores: Callable[[Tensor], Tensor],
    centroids: Callable[[], Centroids] | None = None,
    needs_memory: bool = False,
    novelty: Callable[[Tensor], Tensor] | None = None,
    left_out: Callable[[], Tensor | None] | None = None,
) -> Readout:
    """A read-out of the fixed features by functions of them; scores that are distances unless
    `novelty` is given."""
    foreign = novelty or (lambda z: -scores(z).amax(1))
    return Readout(
        lambda f: scores(f["fixed"]),
        lambda f: f["fixed"],
        centroids,
        needs_memory,
        lambda f: foreign(f["fixed"]),
        left_out,
    )
