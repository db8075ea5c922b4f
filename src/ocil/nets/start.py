"""How a network starts: its initial weights, and what is done to the images it is given."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ocil.errors import OcilError

INITS = ("torch", "kaiming", "xavier")


class Standard(nn.Module):
    """(x - mean) / std for each channel; the numbers are facts of the data and not part of a state.

    >>> Standard((0.5,), (0.25,))(torch.tensor([[[[1.0]]]])).item()
    2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            column = torch.tensor(values, device="cpu").reshape(-1, 1, 1)
            self.register_buffer(name, column, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, c, h, w) -> the same shape."""
        return (x - self.mean) / self.std


def initialize(net: nn.Module, name: str, init: str) -> None:
    """Draw the weights of `net` anew, from torch's own generator; `torch` leaves them.

    kaiming  convolutions from N(0, 2 / fan out) (He et al. 2015)
    xavier   linear layers from U(-a, a), a^2 = 6 / (fan in + fan out), biases 0 (Glorot 2010)
    """
    kinds = {"torch": nn.Module, "kaiming": nn.Conv2d, "xavier": nn.Linear}
    if init not in kinds:
        raise OcilError(f"Initial weights '{init}' do not exist; choose one of {', '.join(INITS)}.")
    layers = [part for part in net.modules() if isinstance(part, kinds[init])]
    if not layers:
        what = {"kaiming": "convolutions", "xavier": "linear layers"}[init]
        raise OcilError(
            f"Initial weights '{init}' are for {what}; the network {name} has none, so use "
            "--init torch."
        )
    for part in layers:
        if init == "kaiming":
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")  # pyright: ignore
        elif init == "xavier":
            nn.init.xavier_uniform_(part.weight)  # pyright: ignore
            nn.init.zeros_(part.bias)  # pyright: ignore
