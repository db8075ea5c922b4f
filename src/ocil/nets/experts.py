"""Early exits of a network: every stage's output brought to the width of the last.

The form of MOSE (Yan et al., CVPR 2024): a map after stage i of S is weighted by a gate, passes
S - i cheap convolutions, each with half the side and twice the channels, and is pooled as the last
map of the network is. A network without maps has a linear layer in their place and no gate.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocil.nets.resnet import ResNet18
from ocil.nets.start import initialize


def down(inputs: int, outputs: int) -> nn.Sequential:
    """Two separable 3x3 convolutions, the first with stride 2: (n, i, h, w) -> (n, o, h/2, w/2)."""
    layers = []
    for channels, stride in ((inputs, 2), (outputs, 1)):
        layers += [
            nn.Conv2d(inputs, inputs, 3, stride, padding=1, groups=inputs, bias=False),
            nn.Conv2d(inputs, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers)


class Gate(nn.Module):
    """h * sigmoid(up(relu(BN(down(h))))): a map weighs its own places, seen from half its size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.look = nn.Sequential(down(channels, channels), nn.BatchNorm2d(channels), nn.ReLU())

    def forward(self, h: Tensor) -> Tensor:
        """(n, c, h, w) -> the same shape."""
        size = h.shape[-2:]
        weight = F.interpolate(self.look(h), size=size, mode="bilinear", align_corners=False)
        return h * weight.sigmoid()


class Exits(nn.Module):
    """Features (n, d) of each stage of `net`, of which the last are `net`'s own.

    The initial weights depend on the generator only; the convolutions draw theirs from Kaiming's
    normal distribution (fan out), as the reference does.
    """

    def __init__(self, net: nn.Module, generator: torch.Generator) -> None:
        super().__init__()
        widths: tuple[int, ...] = net.stage_features  # pyright: ignore
        self.count = len(widths)
        seed = int(torch.randint(2**62, (), generator=generator))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            if isinstance(net, ResNet18):
                exits = [_convolutions(w, self.count - i) for i, w in enumerate(widths[:-1], 1)]
            else:
                exits = [nn.Sequential(nn.Linear(w, widths[-1]), nn.ReLU()) for w in widths[:-1]]
        self.exits = nn.ModuleList(exits)

    def forward(self, net: nn.Module, x: Tensor) -> list[Tensor]:
        """Images (n, ...) in one pass through `net` -> one (n, d) for each stage."""
        if isinstance(net, ResNet18):
            *early, last = net.forward_maps(x)
            early = [h.float() for h in early]  # a map may come in 16 bits, the exits have 32
            return [net.pool(exit(h)) for exit, h in zip(self.exits, early, strict=True)] + [
                net.pool(last)
            ]
        *early, last = net.forward_stages(x)  # pyright: ignore
        return [exit(h) for exit, h in zip(self.exits, early, strict=True)] + [last]


def _convolutions(channels: int, halvings: int) -> nn.Sequential:
    layers = [down(channels * 2**i, channels * 2 ** (i + 1)) for i in range(halvings)]
    layers = nn.Sequential(Gate(channels), *layers)
    initialize(layers, "exits", "kaiming")
    return layers.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
