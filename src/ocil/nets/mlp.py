"""A perceptron with two hidden layers, for small grey images and for vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn


class MLP(nn.Module):
    """flatten -> width -> ReLU -> width -> ReLU; the second hidden layer is the feature.

    The trunk of the usual 784-400-400-10 network on MNIST; the head is separate.
    """

    def __init__(self, shape: Sequence[int], width: int = 400) -> None:
        super().__init__()
        self.features = width
        self.stage_features = (width, width)
        self.standard: nn.Module = nn.Identity()
        self.hidden1 = nn.Linear(math.prod(shape), width)
        self.hidden2 = nn.Linear(width, width)

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """The two hidden layers, each (n, width), from items of any shape with n of them."""
        first = self.hidden1(self.standard(x).flatten(1)).relu()
        return [first, self.hidden2(first).relu()]

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, width)."""
        return self.forward_stages(x)[-1]
