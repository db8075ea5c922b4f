"""Heads that start without classes and grow by rows as classes arrive.

A head never needs the number of classes in advance. New rows come from the head's generator, row by
row, so that two classes and then two more give the same bits as four at once. Old rows, and the
optimiser's moments for them, keep their bits.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocil.errors import OcilError
from ocil.rows import without


class GrowingHead(nn.Module):
    """What the heads share: the parameters named in `rows` have one row per class."""

    rows: tuple[str, ...] = ("weight",)
    weight: nn.Parameter

    def __init__(self, features: int, generator: torch.Generator) -> None:
        super().__init__()
        self.features = features
        self.generator = generator
        self.weight = nn.Parameter(torch.empty(0, features))

    @property
    def classes(self) -> int:
        """The number of rows, which is the number of classes the head can name."""
        return len(self.weight)

    def grow(self, classes: int) -> None:
        """Make `classes` rows in all (never fewer than there are); see `grow_head`."""
        grow_head(self, classes)

    def forget(self, label: int) -> None:
        """Take out the row of a class, if there is one.

        The parameters stay the same objects: an optimiser still holds them.
        """
        for name in self.rows:
            parameter = getattr(self, name)
            parameter.grad = None
            parameter.data = without(parameter.data, label)

    def draw(self, count: int) -> dict[str, Tensor]:
        """Fresh rows for every parameter in `rows`, on the CPU, uniform in +-1/sqrt(features)."""
        bound = self.features**-0.5
        columns = self.features + len(self.rows) - 1  # a row and its bias are drawn together
        u = torch.rand(count, columns, generator=self.generator).mul_(2).sub_(1).mul_(bound)
        parts = (u[:, : self.features], *u[:, self.features :].unbind(1))
        return dict(zip(self.rows, parts, strict=True))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        # Take on the number of rows of the state. The Parameter objects stay the same ones (only
        # their storage is exchanged), so an optimiser made before loading still holds them.
        for name in self.rows:
            parameter, value = getattr(self, name), state_dict.get(prefix + name)
            if value is None or value.shape[1:] != parameter.shape[1:]:
                continue  # torch's own message says what is wrong
            if len(value) != len(parameter):
                parameter.grad = None
                parameter.data = parameter.data.new_zeros(value.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class GrowingLinear(GrowingHead):
    """Scores W x + b, W (classes, features) and b (classes,), drawn as by torch's Linear."""

    rows = ("weight", "bias")

    def __init__(self, features: int, generator: torch.Generator) -> None:
        super().__init__(features, generator)
        self.bias = nn.Parameter(torch.empty(0))

    def forward(self, x: Tensor) -> Tensor:
        """(n, features) -> (n, classes)."""
        return F.linear(x, self.weight, self.bias)


class CosineHead(GrowingHead):
    """Scores s <w_c / |w_c|, x / |x|> with the scale s learnt."""

    def __init__(self, features: int, generator: torch.Generator, scale: float = 10.0) -> None:
        super().__init__(features, generator)
        self.scale = nn.Parameter(torch.tensor(float(scale)))

    def forward(self, x: Tensor) -> Tensor:
        """(n, features) -> (n, classes)."""
        return self.scale * F.linear(F.normalize(x, dim=1), F.normalize(self.weight, dim=1))


def grow_head(
    head: GrowingHead, classes: int, optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Give `head` `classes` rows in all, and tell `optimizer` (which must hold the head) about it.

    Each parameter is replaced by a larger one, in the optimiser's groups as well. State tensors of
    the parameter's shape (exp_avg, momentum_buffer, ...) and a gradient already there are padded
    with zeros; others, such as Adam's step count, are kept. With rows enough, nothing happens.
    """
    count = classes - head.classes
    if count <= 0:
        return
    fresh = head.draw(count)
    for name in head.rows:
        old: nn.Parameter = getattr(head, name)
        grown = torch.cat((old.detach(), fresh[name].to(old)))
        new = nn.Parameter(grown, requires_grad=old.requires_grad)
        if old.grad is not None:
            new.grad = _padded(old.grad, count)
        if optimizer is not None:
            _swap(optimizer, old, new, count)
        setattr(head, name, new)


def _padded(tensor: Tensor, count: int) -> Tensor:
    return torch.cat((tensor, tensor.new_zeros(count, *tensor.shape[1:])))


def _swap(
    optimizer: torch.optim.Optimizer, old: nn.Parameter, new: nn.Parameter, count: int
) -> None:
    """Put `new` in the place of `old` in the groups and in the state of `optimizer`."""
    lists = [group["params"] for group in optimizer.param_groups]
    places = [(own, i) for own in lists for i, parameter in enumerate(own) if parameter is old]
    if not places:
        raise OcilError(
            "The optimiser given for growing the head does not hold its parameters; build the "
            "optimiser with them."
        )
    for own, i in places:
        own[i] = new
    state = optimizer.state.pop(old, None)
    if state is not None:
        optimizer.state[new] = {
            key: _padded(value, count)
            if isinstance(value, Tensor) and value.shape == old.shape
            else value
            for key, value in state.items()
        }
