"""The contract of a method.

A learner is given batches of images and class ids 0, 1, 2, ... in order of first arrival, once
each, and can be asked for scores at any time. It never learns of a class before its first image.

    learn(batch)            shared and final: adds classes, feeds the anchor if any, calls `step`
    step(batch)             the method: one stream batch -> detached 0-d tensors to report
    readouts()              the ways to classify, each a function of features
    parts                   everything with state; saved, loaded and counted here

Answering is in its base, `ocil.learners.reader`.
`ocil.learners.replay.ReplayLearner` adds what most methods share: net, averaged weights, memory.
"""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, final

import torch
from torch import Tensor

from ocil.errors import OcilError
from ocil.learners.encoder import Encoder
from ocil.learners.model import Model
from ocil.learners.parts import Parts
from ocil.learners.reader import Reader
from ocil.learners.readouts import pick_readout
from ocil.memory import Memory
from ocil.settings import Settings
from ocil.stream import Batch

S = TypeVar("S", bound=Settings)
Report = dict[str, Tensor]


class Learner(Reader, Generic[S]):
    method: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    year: ClassVar[int | None] = None
    needs_tasks: bool = False  # of the method; settings may ask for it in a learner
    needs_memory: ClassVar[bool] = False  # True where the method is nothing without one
    memory_policy: ClassVar[str] = "reservoir"  # what decides the memory's content, in words
    settings_type: ClassVar[type[Settings]] = Settings
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    model: Model  # net and head
    memory: Memory  # of capacity 0 where there is none

    def __init_subclass__(cls) -> None:
        if "learn" in vars(cls):
            raise OcilError(
                f"{cls.__name__} defines learn, which all methods share now; derive it from "
                "ReplayLearner, rename learn to step and leave out the call of self.meet."
            )

    def __init__(
        self, settings: S, shape: Sequence[int], generators: Mapping[str, torch.Generator]
    ) -> None:
        self.settings, self.shape, self.generators = settings, tuple(shape), generators
        self.device = torch.device(settings.device)
        self.parts = Parts()
        self.classes = self.known = 0  # seen, and before the batch at hand
        self.gradient_steps = settings.updates  # that a batch of the stream gets, for the record
        self.backbone_images = 0  # images through the net while learning, all passes counted
        self.cache: dict[str, Tensor] = {}  # what read-outs keep until the next `learn`
        self.fixed: dict[str, Encoder] = {}  # latent spaces whose features do not change

    @final
    def learn(self, batch: Batch) -> Report:
        self.add_classes(batch.y)
        left = self.arrive(batch)
        return self.step(left) if left else {}

    def add_classes(self, y: Tensor) -> None:
        """Make room for the classes in y (n,) that are new."""
        self.cache.clear()
        self.known = self.classes
        if (classes := int(y.max()) + 1) > self.classes:
            self.grow(classes)
            self.classes = classes

    def grow(self, classes: int) -> None:
        """What a method adds for new classes; `self.classes` is still their number before."""

    def arrive(self, batch: Batch) -> Batch | None:
        """What happens to a batch before the method learns it -> what is left to learn."""
        return batch

    def step(self, batch: Batch) -> Report:
        """Learn one batch without a synchronisation of device and host."""
        raise NotImplementedError

    def settle(self) -> None:
        """Called when a stream pauses: choose what is chosen by evidence, if it never was."""

    def forget(self, label: int) -> None:
        """Take class `label` out of every part; the ids above it move down by one."""
        self.parts.forget(label)

    def correct(self, x: Tensor, y: Tensor, new: Tensor | None = None) -> None:
        """Take samples out of exact sums, or count them under classes `new` (n,); see `Encoder`."""

    def begin_task(self, task: int) -> None:
        """Called before the first batch of a task where `needs_tasks` is set."""

    def end_task(self, task: int, images: Tensor, labels: Tensor) -> None:
        """Called after the last batch of a task where `needs_tasks` is set; redone after a kill."""

    def choose_readout(self) -> str:
        """The read-out that counts: what the settings name, an anchor's, or the method's own."""
        own, known = f"ema-{self.own_readout}", list(self.readouts())
        wanted = ("fused", "anchor", own, self.own_readout)
        return pick_readout(self.settings.readout, wanted, known, self.method)

    @property
    def nbytes(self) -> int:
        """Bytes held beyond the net and its optimiser."""
        return sum(v.nbytes for k, v in self.parts.items() if k not in ("model", "optimizer"))

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        """Every tensor that later behaviour depends on; `samples=False`: with empty memories."""
        counts = torch.tensor([self.classes, self.backbone_images])
        return {"counts": counts, **self.parts.state_dict(samples)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.cache.clear()
        self.classes, self.backbone_images = map(int, state["counts"])
        self.parts.load_state_dict(state, self.classes)
