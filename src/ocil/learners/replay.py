"""What replay methods share: net and growing head, optimiser, averaged weights, memory.

Read-outs exist for both sets of weights: "head" and "mean" read the features of the live weights,
"ema-head" and "ema-mean" those of the averaged ones.
"""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import augment, nets
from ocil.errors import OcilError
from ocil.learners import build, judging, readouts
from ocil.learners.anchor import Anchor, Scores
from ocil.learners.encoder import CHUNK, as_float
from ocil.learners.jury import SHARE, Jury
from ocil.learners.learner import Learner, S
from ocil.learners.model import Model, WeightAverage, evaluating
from ocil.learners.parts import OptimizerState, Teacher, Weights
from ocil.learners.readouts import Centroids, Features, Readout
from ocil.memory import Memory
from ocil.nets.heads import grow_head
from ocil.stream import Batch

PREFIX = {"live": "", "average": "ema-"}  # of a read-out's name, by the weights it reads


class ReplayLearner(Learner[S]):
    def __init__(
        self, settings: S, shape: Sequence[int], generators: Mapping[str, torch.Generator]
    ) -> None:
        super().__init__(settings, shape, generators)
        self.augment = augment.build(settings.augment)
        augment.check(settings.augment, shape)
        net = build.network(settings, self.shape, generators["init"])
        if isinstance(net, nets.Fitted):
            raise OcilError(
                f"The network {settings.net} is fixed, and {self.method} trains its network; "
                "choose another, such as --net resnet18, or another method, such as slda."
            )
        self.scale = build.scale(settings, net, self.shape)
        self.parts |= {"scale": self.scale} if self.scale else {}
        self.model = self.build_model(net).to(self.device)
        self.optimizer = self.build_optimizer()
        self.average = WeightAverage(self.model, settings.ema) if settings.ema else None
        self.parts |= {"model": Weights(self.model), "optimizer": OptimizerState(self.optimizer)}
        self.parts |= {"average": self.average} if self.average else {}
        self._teacher = self.parts["teacher"] = Teacher(self.model)
        build.check_memory(self.method, self.needs_memory, settings.memory)
        size = settings.memory or 0
        self.jury = Jury(size // SHARE if settings.jury else 0, self.device)
        self.memory = self.build_memory(settings.memory and size - self.jury.capacity)
        self.parts |= {"jury": self.jury} if self.jury.capacity else {}
        self.anchor = None
        if settings.anchor != "none":
            self.anchor = Anchor(settings, self.shape, keeps=not self.memory.capacity)
            self.parts |= self.anchor.parts
            self.fixed = {"anchor": self.anchor.encoder}
        self.readout = self.choose_readout()

    def build_model(self, net: torch.nn.Module) -> Model:
        """Net and head; a method with more returns its own subclass of `Model`."""
        return Model(net, self.generators["init"])

    def build_optimizer(self) -> torch.optim.Optimizer:
        return build.optimizer(self.settings, self.model)

    def build_memory(self, capacity: int | None) -> Memory:
        """The replay memory, a part where there is one; of capacity 0 where there is none."""
        memory = Memory(capacity or 0, self.device)
        if capacity is not None:
            self.parts["memory"] = memory
        return memory

    # ---------------------------------------------------------------- learning

    def grow(self, classes: int) -> None:
        for head in self.model.heads:
            grow_head(head, classes, self.optimizer)
        if self.average:
            self.average.grow(classes)

    @property
    def updates(self) -> int:
        """Gradient steps that the batch at hand gets; more while samples are few."""
        return build.updates(self.settings, self.classes, self.memory.seen)

    def arrive(self, batch: Batch) -> Batch | None:
        """Scale and anchor take every sample once, before the method learns it; then the jury."""
        if self.scale and not batch.epoch:
            self.scale.watch(batch.x)
        if self.anchor and not batch.epoch:
            x, y = batch.x.to(self.device), batch.y.to(self.device)
            asks = self.updates and not self.jury.weights  # a jury knows more
            scores = self.learned_scores() if asks else None

            def ask(x: Tensor) -> Tensor:
                self.backbone_images += len(x)
                return scores(self.features(x)) if scores else x

            self.anchor.update(x, y, self.memory, self.known, ask if scores else None)
        if self.jury.capacity:
            batch = self.jury.take(batch, self.classes, self.generators["memory"])
            if self.jury.due and self.updates:
                self.jury.judge(*judging.words(self))
        if not self.updates:
            self.remember(batch)
        return batch if self.updates and len(batch.y) else None

    def settle(self) -> None:
        if self.anchor:
            self.anchor.moments.settle(*self.anchor.held(self.memory))

    def correct(self, x: Tensor, y: Tensor, new: Tensor | None = None) -> None:
        if self.anchor:
            self.anchor.correct(x, y, new)

    @property
    def teacher(self) -> Model | None:
        """Earlier weights, see `keep_teacher`."""
        return self._teacher.model

    def keep_teacher(self) -> None:
        """Keep the weights of now, frozen and in eval mode."""
        self._teacher.keep()

    def with_replay(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Replayed images first, then the stream's, raw: x (m + n, ...), y (m + n,)."""
        s, x, y = self.settings, batch.x.to(self.device), batch.y.to(self.device)
        if not len(self.memory) or not s.replay:
            return x, y
        old = self.memory.draw(s.replay, self.generators["memory"], s.retrieval)
        return torch.cat([old["x"], x]), torch.cat([old["y"], y])

    def remember(self, batch: Batch) -> None:
        """Offer the batch, as it came, to the memory; here a reservoir."""
        self.memory.reservoir(batch.x, batch.y, self.generators["memory"])

    def augmented(self, x: Tensor) -> Tensor:
        return self.augment(as_float(x), self.generators["augment"])

    def augment_views(self, x: Tensor, y: Tensor, fresh: int, views: int) -> tuple[Tensor, Tensor]:
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

    def logits(self, x: Tensor) -> Tensor:
        """Train-mode forward of float images, counted."""
        self.backbone_images += len(x)
        return self.model(x)

    def optimizer_step(self, loss: Tensor) -> Tensor:
        """One step on the loss, followed by the average of the weights -> the loss, detached."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        if self.average:
            self.average.update()
        return loss.detach()

    def rehearsal_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Of augmented images x of classes y (n,) out of the memory, see `ocil.consolidation`."""
        return F.cross_entropy(self.logits(x), y)

    def rehearsed(self) -> None:
        """Called after the last step on the memory alone."""

    def drop_lr(self, batch: Batch, shares: Sequence[float]) -> None:
        """A tenth of the learning rate after each of these shares of a task's epochs."""
        drops = sum(batch.epoch >= share * batch.epochs for share in shares)
        for group in self.optimizer.param_groups if shares else ():
            group["lr"] = self.settings.lr * 0.1**drops

    # ---------------------------------------------------------------- reading

    @property
    def spaces(self) -> dict[str, Model]:
        """The sets of weights whose features are read."""
        return {"live": self.model} | ({"average": self.average.model} if self.average else {})

    def features(self, x: Tensor) -> Features:
        def compute(space: str) -> Tensor:
            fixed = self.fixed.get(space)
            return fixed.encode(x) if fixed else self.encode(self.spaces[space], x)

        return Features(compute)

    def encode(self, model: Model, x: Tensor) -> Tensor:
        """Eval-mode features (n, d) of raw images, without augmentation."""
        with evaluating(model):
            chunks = torch.split(x.to(self.device), CHUNK)
            return torch.cat([self.forward_features(model, as_float(chunk)) for chunk in chunks])

    def forward_features(self, model: Model, x: Tensor) -> Tensor:
        """Float images -> what the read-outs of a set of weights read, (n, ...)."""
        return model.net(x)

    def readouts(self) -> dict[str, Readout]:
        found = {
            PREFIX[space] + name: readout
            for space, model in self.spaces.items()
            for name, readout in self.readouts_in(space, model).items()
        }
        if self.anchor:
            net, weights = self.learned_scores(), lambda: judging.pool_weights(self)
            found |= self.anchor.readouts(net, self.memory, weights)
        return found

    @property
    def trained(self) -> bool:
        """Whether the net has been trained at all."""
        return bool(self.average.updates if self.average else self.optimizer.state)

    @property
    def temperature(self) -> float:
        return judging.temperature(self)

    @property
    def counts_at_once(self) -> bool:
        return self.anchor is not None and self.readout in ("fused", "anchor")

    def counting(self, x: Tensor, y: Tensor) -> AbstractContextManager[None]:
        assert self.anchor is not None
        return self.anchor.moments.counting(self.anchor.encoder.encode(x), y.to(self.device))

    def fair_answers(self) -> tuple[Tensor, Tensor] | None:
        return judging.fair_answers(self)

    def learned_scores(self) -> Scores | None:
        """What `fused` joins to the anchor: log-probabilities by the head, averaged if it can be.

        None for a method that has no head.
        """
        space = "average" if self.average else "live"
        head = self.readouts_in(space, self.spaces[space]).get("head")
        return (lambda features: head.scores(features).log_softmax(1)) if head else None

    def readouts_in(self, space: str, model: Model) -> dict[str, Readout]:
        """The read-outs that exist for any set of weights; a method adds or replaces its own."""

        def points(features: Features) -> Tensor:
            return features[space]

        def head(features: Features) -> Tensor:
            return model.head(features[space])

        own = {"head": Readout(head, points)}
        return own | ({"mean": self.mean_readout(space)} if self.memory.capacity else {})

    def mean_readout(self, space: str) -> Readout:
        """Minus the squared distance to each class mean of the memory, all of unit length.

        A class that the memory does not hold gets -inf. Means are kept until the next `learn`.
        """

        def unit(features: Features) -> Tensor:
            return F.normalize(features[space], dim=1)

        def scores(features: Features) -> Tensor:
            z = features[space]
            if not len(self.memory):
                return z.new_full((len(z), self.classes), -torch.inf)
            if space not in self.cache:
                x, y = self.memory_items()
                self.cache[space] = readouts.class_means(self.features(x)[space], y, self.classes)
            return readouts.nearest_mean(z, self.cache[space])

        def novelty(features: Features) -> Tensor:
            return -scores(features).amax(1)

        return Readout(scores, unit, needs_memory=True, novelty=novelty)

    def memory_items(self) -> tuple[Tensor, Tensor]:
        """All images (m, ...) and class ids (m,) in the memory, which is not empty."""
        filled = slice(len(self.memory))
        return self.memory.columns["x"][filled], self.memory.columns["y"][filled]

    @torch.inference_mode()
    def centroids(self) -> Centroids | None:
        own = self.readouts()[self.readout].centroids
        if own is not None or not len(self.memory):
            return own() if own else None
        x, y = self.memory_items()
        return readouts.mean_centroids(self.latent_points(x), y, self.classes)
