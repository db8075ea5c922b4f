"""Networks that turn items into feature vectors; heads are in `ocil.nets.heads`.

Every network has `features`, `stage_features`, `forward(x) -> (n, features)` and
`forward_stages(x)`, one vector per stage of which the last equals `forward(x)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ocil.errors import OcilError, suggest
from ocil.nets.foreign import Foreign, offered
from ocil.nets.mlp import MLP
from ocil.nets.patches import SMALLEST, Patches, PatchSettings
from ocil.nets.random_features import RandomFeatures, RandomSettings
from ocil.nets.resnet import ResNet18
from ocil.nets.start import Standard, initialize

DEFAULT_WIDTHS = {"mlp": 400, "resnet18": 20, "resnet18-global": 20, "identity": 0}
DEFAULT_WIDTHS |= {"patches": 0, "random": 2000}
NAMES = tuple(DEFAULT_WIDTHS)


@runtime_checkable
class Fitted(Protocol):
    """A network without trained weights that is made from the first items of a stream."""

    fitted: Tensor  # 0-d, items that made it

    def fit(self, x: Tensor) -> None: ...


@runtime_checkable
class Net(Protocol):
    """What learners may ask of a network besides being an nn.Module."""

    features: int
    stage_features: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor: ...

    def forward_stages(self, x: Tensor) -> list[Tensor]: ...


class Identity(nn.Module):
    """The flat input as its own feature, for streams of embeddings."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.features = math.prod(shape)
        self.stage_features = (self.features,)
        self.standard: nn.Module = nn.Identity()

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """The one stage there is, (n, features)."""
        return [self.forward(x)]

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, features)."""
        return self.standard(x).flatten(1)


def build(
    name: str,
    shape: Sequence[int],
    *,
    width: int | None = None,
    generator: torch.Generator,
    precision: str = "float32",
    init: str = "torch",
    standard: tuple[Sequence[float], Sequence[float]] | None = None,
    options: PatchSettings | RandomSettings | None = None,
) -> nn.Module:
    """The network `name` (a `Net`) for items of `shape`, its weights drawn from `generator` alone.

    `width` None or 0 means the network's own: 400 hidden units, nf = 20 channels, filters for 2 400
    features, 2 000 random features. `options` are the network's own group of settings. `precision`
    bfloat16 halves the width of the convolutions' numbers.
    `standard`: mean and deviation of each channel, for a network that standardizes its images.
    """
    if name == "module" and (init != "torch" or standard):
        raise OcilError(
            "The network is a module of your own, which has its weights and gets images as they "
            "are; leave --init at torch and --inputs at unit."
        )
    if name == "module":
        return Foreign(offered(), shape, generator)
    if name not in DEFAULT_WIDTHS:
        known = ", ".join(NAMES)
        raise OcilError(
            f"There is no network '{name}'; choose one of {known}.{suggest(name, NAMES)}"
        )
    if width is not None and width < 0:
        raise OcilError(
            f"The network's width is {width}; give a positive number, or 0 for its own."
        )
    if precision != "float32" and not name.startswith("resnet18"):
        raise OcilError(
            f"Precision {precision} is for convolutions; the network {name} has none, so leave "
            "--precision at float32."
        )
    width = width or DEFAULT_WIDTHS[name]
    seed = int(torch.randint(2**62, (), generator=generator, device="cpu"))
    # torch's layers initialise themselves from the global generator: lend it the seed, restore it
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        net = _named(name, shape, width, precision, options)
        initialize(net, name, init)
    if standard:
        net.standard = Standard(*standard)
    return net


def is_frozen(name: str) -> bool:
    """Whether the network `name` has no weights to train: a fixed encoder, a frozen module."""
    if name == "module":
        return not any(weight.requires_grad for weight in offered().parameters())
    return name in ("identity", "patches", "random")


def fixed_for(shape: Sequence[int]) -> str:
    """The fixed encoder for items of a shape."""
    return "patches" if len(shape) == 3 and min(shape[1:]) >= SMALLEST else "random"


def _named(
    name: str, shape: Sequence[int], width: int, precision: str, options: Any
) -> MLP | Identity | ResNet18 | Patches | RandomFeatures:
    if name == "mlp":
        return MLP(shape, width)
    if name == "patches":
        return Patches(shape, width, options)
    if name == "random":
        return RandomFeatures(shape, width, options)
    if name == "identity":
        return Identity(shape)
    pool = "global" if name == "resnet18-global" else "window"
    return ResNet18(shape, width, pool, precision)
