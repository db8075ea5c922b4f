"""The contract of a method.

A learner is given batches of images and class ids 0, 1, 2, ... in order of first arrival, once
each, and can be asked for scores at any time. It never learns of a class before its first image.

    learn(batch)        one stream batch -> detached 0-d tensors to report; no host synchronisation
    scores(x, readout)  (n, ...) images -> (n, classes seen); changes no state
    begin_task, end_task    only called where `needs_tasks` is set

This base holds what replay methods share: the net with its growing head, the optimiser, the
average of the weights, the memory, and the read-outs from both sets of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from ocil import augment, nets
from ocil.data.sources import standard
from ocil.errors import OcilError, suggest
from ocil.learners.model import Model, WeightAverage, frozen_copy
from ocil.learners.readouts import Centroids, class_means, mean_centroids, nearest_mean
from ocil.learners.state import below, load_optimizer_state, optimizer_state
from ocil.memory import Memory
from ocil.nets.heads import grow_head
from ocil.settings import Settings
from ocil.stream import Batch

Reader = Callable[[Model, torch.Tensor], torch.Tensor]  # features (n, d) -> scores (n, C)
CHUNK = 125  # images per forward pass when features of many are wanted; more only take memory


class Learner:
    """Base of all methods; see the module's docstring."""

    method: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    year: ClassVar[int | None] = None
    needs_tasks: bool = False  # of the method; settings may ask for it in a learner
    needs_memory: ClassVar[bool] = False  # True where the method is nothing without one
    keeps: ClassVar[str] = "reservoir"  # what decides the memory's content, for `ocil methods`
    own_readout: ClassVar[str] = "head"  # what counts by default, from averaged weights if kept
    settings_type: ClassVar[type[Settings]] = Settings
    presets: ClassVar[dict[str, dict[str, Any]]] = {}

    def __init__(
        self,
        settings: Settings,
        shape: Sequence[int],
        generators: Mapping[str, torch.Generator],
    ) -> None:
        self.settings = settings
        self.generators = generators
        self.device = torch.device(settings.device)
        self.augment = augment.build(settings.augment)
        augment.check(settings.augment, shape)
        net = nets.build(
            settings.net,
            tuple(shape),
            width=settings.width,
            generator=generators["init"],
            precision=settings.precision,
            init=settings.init,
            standard=standard(settings.data, shape) if settings.inputs == "standardized" else None,
        )
        self.model = self.build_model(net).to(self.device)
        self.optimizer = self._optimizer()
        self.average = WeightAverage(self.model, settings.ema) if settings.ema else None
        self.teacher: Model | None = None  # weights of before, see `keep_teacher`
        capacity = settings.memory
        if self.needs_memory and capacity is None:
            raise OcilError(
                f"{self.method} cannot do without a memory, but memory is none; give the number of "
                "images to keep, such as --memory 500."
            )
        self.memory = Memory(capacity, self.device) if capacity is not None else None
        self.classes = 0
        self.backbone_images = 0  # images through the net while learning, all passes counted
        self._means: dict[Model, torch.Tensor] = {}  # of the memory, kept until the next `learn`
        self.readout = self._checked_readout()

    def build_model(self, net: torch.nn.Module) -> Model:
        """Net and head; a method with more parts returns its own subclass of `Model`."""
        return Model(net, self.generators["init"])

    def _optimizer(self) -> torch.optim.Optimizer:
        # The fused form does the same arithmetic in one pass; the plain one costs more than the
        # forward and backward pass of the MLP together.
        kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[self.settings.optimizer]
        lr, decay = self.settings.lr, self.settings.weight_decay
        more: dict[str, Any] = {"momentum": self.settings.momentum}
        if kind is torch.optim.AdamW:
            more = {}
        return kind(self.model.parameters(), lr=lr, weight_decay=decay, fused=True, **more)

    @property
    def replay_memory(self) -> Memory:
        """The memory of a method that has one for certain (`needs_memory`)."""
        assert self.memory is not None
        return self.memory

    # ---------------------------------------------------------------- learning

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        raise NotImplementedError

    def begin_task(self, task: int) -> None:
        """Called before the first batch of a task where `needs_tasks` is set."""

    def end_task(self, task: int, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Called after the last batch of a task where `needs_tasks` is set; redone after a kill."""

    def meet(self, y: torch.Tensor) -> None:
        """Grow heads for classes that appear for the first time; forget cached read-outs."""
        self._means.clear()
        classes = max(self.classes, int(y.max()) + 1)
        if classes > self.classes:
            for head in self.model.heads:
                grow_head(head, classes, self.optimizer)
            if self.average:
                self.average.grow(classes)
            self.classes = classes

    def keep_teacher(self) -> None:
        """Keep the weights of now, frozen and in eval mode: they are counted and saved."""
        self.teacher = frozen_copy(self.model)

    def with_replay(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Replayed images first, then the stream's, raw: x (m + n, ...), y (m + n,)."""
        x, y = batch.x.to(self.device), batch.y.to(self.device)
        if self.memory is None or not len(self.memory) or not self.settings.replay:
            return x, y
        s = self.settings
        old = self.memory.draw(s.replay, self.generators["memory"], s.retrieval)
        return torch.cat([old["x"], x]), torch.cat([old["y"], y])

    def augmented(self, x: torch.Tensor) -> torch.Tensor:
        return self.augment(as_float(x), self.generators["augment"])

    def in_views(
        self, x: torch.Tensor, y: torch.Tensor, fresh: int, views: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Float images of a step and their labels: raw x (n, ...) augmented, y (n,).

        The last `fresh`, the stream's, come in `views` views, all others in one; of several views
        the last is the image as it is, which is how it will look when the method is asked.
        """
        if views == 1:
            return self.augmented(x), y
        new = x[len(x) - fresh :]
        more = [self.augmented(new) for _ in range(views - 2)]
        shown = torch.cat([self.augmented(x), *more, as_float(new)])
        return shown, torch.cat([y, y[len(y) - fresh :].repeat(views - 1)])

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Train-mode forward of float images, counted."""
        self.backbone_images += len(x)
        return self.model(x)

    def descend(self, loss: torch.Tensor) -> None:
        """One optimiser step on the loss, followed by the average of the weights."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        if self.average:
            self.average.update()

    def drop_lr(self, batch: Batch, shares: Sequence[float]) -> None:
        """A tenth of the learning rate after each of these shares of a task's epochs."""
        drops = sum(batch.epoch >= share * batch.epochs for share in shares)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.lr * 0.1**drops

    # ---------------------------------------------------------------- reading

    def own_readers(self) -> dict[str, Reader]:
        """The read-outs that exist for any set of weights; a method adds or replaces its own."""
        return {"head": self.read_head} | ({} if self.memory is None else {"mean": self.read_mean})

    def readers(self) -> dict[str, tuple[Model, Reader]]:
        """Every read-out: the weights whose features it reads, and how it reads them."""
        own = self.own_readers()
        found = {name: (self.model, reader) for name, reader in own.items()}
        if self.average:
            model = self.average.model
            found |= {f"ema-{name}": (model, reader) for name, reader in own.items()}
        return found

    @property
    def readouts(self) -> list[str]:
        return list(self.readers())

    def _checked_readout(self) -> str:
        wanted, known = self.settings.readout, self.readouts
        if wanted == "auto":
            averaged = f"ema-{self.own_readout}"
            return averaged if averaged in known else self.own_readout
        if wanted not in known:
            raise OcilError(
                f"Unknown read-out '{wanted}' for {self.method}.{suggest(wanted, known)} "
                f"Known here: {', '.join(known)}."
            )
        return wanted

    def scores(self, x: torch.Tensor, readout: str | None = None) -> torch.Tensor:
        """Scores (n, classes seen) of raw images, larger is likelier, for one read-out."""
        name = readout or self.readout
        return self.all_scores(x, [name])[name]

    @torch.inference_mode()
    def all_scores(self, x: torch.Tensor, wanted: Sequence[str]) -> dict[str, torch.Tensor]:
        """Scores of several read-outs, with one forward pass for each set of weights."""
        readers = self.readers()
        found: dict[str, torch.Tensor] = {}
        for model in {id(readers[name][0]): readers[name][0] for name in wanted}.values():
            features = self.features(model, x)
            for name in wanted:
                if readers[name][0] is model:
                    found[name] = readers[name][1](model, features)
        return found

    def features(self, model: Model, x: torch.Tensor) -> torch.Tensor:
        """Eval-mode features (n, d) of raw images, without augmentation."""
        with evaluating(model):
            chunks = x.to(self.device).split(CHUNK)
            return torch.cat([model.net(as_float(chunk)) for chunk in chunks])

    def read_head(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        return model.head(features)

    def read_mean(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        """Minus the squared distance to each class mean of the memory, all of unit length.

        A class that the memory does not hold gets -inf. Means are kept until the next `learn`.
        """
        assert self.memory is not None
        if not len(self.memory):
            return features.new_full((len(features), self.classes), -torch.inf)
        if model not in self._means:
            filled = slice(len(self.memory))
            old = self.features(model, self.memory.columns["x"][filled])
            y = self.memory.columns["y"][filled]
            self._means[model] = class_means(old, y, self.classes)
        return nearest_mean(features, self._means[model])

    def look_inside(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        """Plain numbers for the record at a task's end, from test images x of classes y (n,)."""
        return {}

    # ---------------------------------------------------------------- pictures

    @torch.inference_mode()
    def latent_points(self, x: torch.Tensor) -> torch.Tensor:
        """Features (n, d) of raw images as the read-out that counts sees them."""
        model, _ = self.readers()[self.readout]
        return self.as_read(model, self.features(model, x))

    def as_read(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        """What of the features (n, ...) the read-out compares: class means those of unit length."""
        return F.normalize(features, dim=1) if self.readout.endswith("mean") else features

    @torch.inference_mode()
    def centroids(self) -> Centroids | None:
        """What stands for the classes among the latent points: here the means of the memory."""
        if self.memory is None or not len(self.memory):
            return None
        x, y = (self.memory.columns[name][: len(self.memory)] for name in ("x", "y"))
        return mean_centroids(self.latent_points(x), y, self.classes)

    # ---------------------------------------------------------------- state

    @property
    def gradient_steps(self) -> int:
        """Gradient steps that a batch of the stream gets, for the record."""
        return self.settings.steps

    @property
    def extra_bytes(self) -> int:
        """Bytes held beyond net and memory: averaged weights, a teacher, and what a method adds."""
        models = [self.average.model] if self.average else []
        models += [self.teacher] if self.teacher else []
        held = [tensor for model in models for tensor in model.state_dict().values()]
        return sum(t.numel() * t.element_size() for t in held)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Every tensor that later behaviour depends on, by a flat name."""
        state = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        state |= optimizer_state(self.optimizer)
        if self.average:
            state |= {f"average.{k}": v for k, v in self.average.model.state_dict().items()}
            state["average.updates"] = torch.tensor(self.average.updates)
        if self.teacher:
            state |= {f"teacher.{k}": v for k, v in self.teacher.state_dict().items()}
        if self.memory is not None:
            state |= {f"memory.{k}": v for k, v in self.memory.state_dict().items()}
        counts = [self.classes, self.backbone_images]
        return state | {"counts": torch.tensor(counts)}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        self._means.clear()
        self.classes, self.backbone_images = state["counts"].tolist()
        self.model.load_state_dict(below(state, "model."))
        if any(head.classes != self.classes for head in self.model.heads):
            raise ValueError(f"the head has not one row for each of {self.classes} classes")
        load_optimizer_state(self.optimizer, below(state, "optimizer."))
        if self.average:
            self.average.load(below(state, "average."))
        self._load_teacher(below(state, "teacher."))
        if self.memory is not None:
            self.memory.load_state_dict(below(state, "memory."), self.classes)

    def _load_teacher(self, state: Mapping[str, torch.Tensor]) -> None:
        self.teacher = frozen_copy(self.model) if state else None
        if self.teacher:
            self.teacher.load_state_dict(state)
            rows = {head.classes for head in self.teacher.heads}
            if len(rows) > 1 or any(count > self.classes for count in rows):
                raise ValueError(f"the teacher knows other classes than the {self.classes} seen")


def as_float(x: torch.Tensor) -> torch.Tensor:
    """uint8 images to float32 in [0, 1]; float input is left as it is."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x.float()


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Eval mode inside, the mode of before afterwards."""
    was = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was)
