"""ResNet-18 for small images (He et al. 2016, in the form of Lopez-Paz and Ranzato 2017).

3x3 stem with stride 1 and no max-pool, four stages of two basic blocks with strides 1, 2, 2, 2 and
nf, 2 nf, 4 nf, 8 nf channels, average pooling over 4x4 windows, flatten. nf = 20 is the slim
network (1.09 M parameters, 0.055 GMAC at 32 px), nf = 64 the full one (11.17 M, 0.555 GMAC).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocil.errors import OcilError

WINDOW = 4  # pixels of the last map averaged together, per side
STRIDES = (1, 2, 2, 2)


def _conv(inputs: int, outputs: int, size: int, stride: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Shortcut(nn.Conv2d):
    """A 1x1 convolution with a stride.

    With fewer than 8 channels the pixels are picked first: oneDNN's kernel for that case writes
    past its buffers where the processor lacks AVX-512 (torch 2.13).
    """

    def forward(self, input: Tensor) -> Tensor:
        if self.in_channels >= 8:
            return super().forward(input)
        step = self.stride[0]
        return F.conv2d(input[:, :, ::step, ::step].contiguous(), self.weight)


class Block(nn.Module):
    """relu(BN conv relu(BN conv x) + shortcut x), a strided 1x1 shortcut where shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(inputs, outputs, 3, stride)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = _conv(outputs, outputs, 3, 1)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                Shortcut(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) -> (n, outputs, h / stride, w / stride)."""
        out = F.relu(self.norm1(self.conv1(x)), inplace=True)
        out = self.norm2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet18(nn.Module):
    """Trunk for images of `shape` (C, H, W) with nf = `width` channels in the first stage.

    pool = "window": avg_pool2d(4) on the last map (side / 8, rounded up): 32 px give 8 nf features,
    64 px 32 nf; below 25 px that map is smaller than one window and is averaged whole.
    pool = "global": always averaged whole, 8 nf features.

    precision = "bfloat16": convolutions in 16 bits (torch's autocast), weights, batch-norm
    statistics and features in 32. `maps` are 16 bits wide then, features never.
    """

    def __init__(
        self,
        shape: Sequence[int],
        width: int = 20,
        pool: str = "window",
        precision: str = "float32",
    ) -> None:
        super().__init__()
        self.low = precision == "bfloat16"
        if len(shape) != 3:
            raise OcilError(
                f"The network resnet18 needs images (channels, height, width), but the items have "
                f"shape {tuple(shape)}; use --net mlp."
            )
        if pool not in ("window", "global"):
            raise OcilError(f"Pooling '{pool}' does not exist; choose 'window' or 'global'.")
        channels = [width, 2 * width, 4 * width, 8 * width]
        height, wide = (-(-side // 8) for side in shape[1:])  # three halvings, each rounded up
        self.windowed = pool == "window" and min(height, wide) >= WINDOW
        windows = (height // WINDOW) * (wide // WINDOW) if self.windowed else 1
        self.features = channels[-1] * windows
        self.stage_features = (*channels[:3], self.features)
        self.standard: nn.Module = nn.Identity()
        self.conv = _conv(shape[0], width, 3, 1)
        self.norm = nn.BatchNorm2d(width)
        before = [width, *channels[:3]]
        self.stages = nn.ModuleList(
            nn.Sequential(Block(i, o, stride), Block(o, o, 1))
            for i, o, stride in zip(before, channels, STRIDES, strict=True)
        )
        # Channels last is the faster layout for these convolutions (bench/step.py); it decides the
        # bits of a run, so it is not a setting.
        self.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]

    def _computing(self, x: Tensor) -> torch.autocast:
        return torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=self.low)

    def _stem(self, x: Tensor) -> Tensor:
        x = self.standard(x).contiguous(memory_format=torch.channels_last)
        return F.relu(self.norm(self.conv(x)), inplace=True)

    def forward_maps(self, x: Tensor) -> list[Tensor]:
        """The map after each stage: (n, nf, H, W), ..., (n, 8 nf, H / 8, W / 8)."""
        maps = []
        with self._computing(x):
            x = self._stem(x)
            for stage in self.stages:
                x = stage(x)
                maps.append(x)
        return maps

    def forward_blocks(self, x: Tensor) -> list[Tensor]:
        """The map after each of the eight blocks, the last one pooled: (n, features)."""
        maps = []
        with self._computing(x):
            x = self._stem(x)
            for stage in self.stages:
                for block in stage.children():
                    x = block(x)
                    maps.append(x)
        return [*maps[:-1], self.pool(maps[-1])]

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """One vector per stage: 1-3 averaged over the map (n, channels), the last = forward."""
        *early, last = self.forward_maps(x)
        return [each.float().mean((2, 3)) for each in early] + [self.pool(last)]

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, features)."""
        return self.pool(self.forward_maps(x)[-1])

    def pool(self, last: Tensor) -> Tensor:
        """The last map (n, 8 nf, h, w) -> (n, features)."""
        last = last.float()
        # flatten orders by channel, row, column in any memory format
        return F.avg_pool2d(last, WINDOW).flatten(1) if self.windowed else last.mean((2, 3))
