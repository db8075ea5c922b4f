"""A feature extractor with a growing head, and the running average of its weights."""

import copy
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor, nn

from ocil.nets.heads import GrowingHead, GrowingLinear, grow_head
from ocil.nets.projection import Projection


class Model(nn.Module):
    """net: images (n, ...) -> features (n, d); head: features -> logits (n, classes seen).

    A method with more parts (projections, experts) makes a subclass in `build_model`: all
    parameters are trained, averaged and saved, and every head among them grows.
    """

    not_averaged: ClassVar[tuple[str, ...]] = ()  # how the names begin that it leaves alone

    def __init__(self, net: nn.Module, generator: torch.Generator) -> None:
        super().__init__()
        self.net = net
        self.head = GrowingLinear(int(net.features), generator)  # pyright: ignore

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x))

    @property
    def heads(self) -> list[GrowingHead]:
        """Every head that has a row for each class, in the order they were made."""
        return [part for part in self.modules() if isinstance(part, GrowingHead)]


class Headless(Model):
    """A net with nothing to train: the head stays without rows, and the method does without it."""

    @property
    def heads(self) -> list[GrowingHead]:
        return []


class Projected(Model):
    """A net under a projection and no head: images -> projected features (n, out), unit length."""

    def __init__(self, net: nn.Module, out: int, generator: torch.Generator, layers: int) -> None:
        nn.Module.__init__(self)
        self.net, features = net, int(net.features)  # pyright: ignore
        self.project = Projection(features, features * (layers - 1), out, generator)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(self.net(x))


def frozen_copy(model: Model) -> Model:
    """The model as it is now, in eval mode and without gradients."""
    return copy.deepcopy(model).requires_grad_(False).eval()


@contextmanager
def evaluating(model: nn.Module) -> Generator[None]:
    """Eval mode inside; afterwards the mode it had."""
    was = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was)


class WeightAverage:
    """Exponential average of weights and batch-norm statistics.

    theta_bar <- a_t theta_bar + (1 - a_t) theta with a_t = min(a, (1 + t) / (10 + t)), t counting
    the updates so far: the first steps, far from any good weights, are forgotten quickly.
    """

    holds_samples: ClassVar[bool] = False

    def __init__(self, model: Model, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self.live = model
        self.model = frozen_copy(model)
        self._pairs: tuple[list[Tensor], list[Tensor]] | None = None

    def grow(self, classes: int) -> None:
        """New classes start with the rows that the live head drew for them."""
        for mine, live in zip(self.model.heads, self.live.heads, strict=True):
            known = mine.classes
            grow_head(mine, classes)
            for name in mine.rows:
                getattr(mine, name).data[known:] = getattr(live, name).data[known:]
        self._pairs = None

    def forget(self, label: int) -> None:
        for head in self.model.heads:
            head.forget(label)
        self._pairs = None

    def _matched(self) -> tuple[list[Tensor], list[Tensor]]:
        """Averaged and live tensors in the same order; collecting them each step costs more than
        the average itself, so the lists are kept until the head grows."""
        if self._pairs is None:
            mine, live = self.model.state_dict(), self.live.state_dict()
            kept = self.live.not_averaged
            names = [n for n, v in live.items() if v.is_floating_point() and not n.startswith(kept)]
            self._pairs = [mine[n] for n in names], [live[n] for n in names]
        return self._pairs

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.model.state_dict().values())

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        return {**self.model.state_dict(), "updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        weights = {name: value for name, value in state.items() if name != "updates"}
        self.updates = int(state["updates"])
        if self.updates < 0:
            raise ValueError(f"the average has {self.updates} updates")
        self.model.load_state_dict(weights)
        if any(head.classes != classes for head in self.model.heads):
            raise ValueError(f"the averaged head does not have one row for each of {classes}")
        self._pairs = None

    @torch.no_grad()
    def update(self) -> None:
        a = min(self.decay, (1 + self.updates) / (10 + self.updates))
        mine, live = self._matched()
        torch._foreach_lerp_(mine, live, 1 - a)  # pyright: ignore[reportPrivateImportUsage]
        self.updates += 1
