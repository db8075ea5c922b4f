"""Colour operations on batches of RGB images (n, 3, H, W) in [0, 1].

Names that end in an underscore write into the images given; factors are per image, (n,).
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

GRAY_WEIGHTS = (0.299, 0.587, 0.114)  # luma of ITU-R BT.601


def gray(x: Tensor) -> Tensor:
    """Gray images (n, 1, H, W) = 0.299 R + 0.587 G + 0.114 B."""
    red, green, blue = GRAY_WEIGHTS
    out = x[:, 0:1] * red
    return out.add_(x[:, 1:2], alpha=green).add_(x[:, 2:3], alpha=blue)


def _column(factor: Tensor) -> Tensor:
    return factor[:, None, None, None]


def brightness_(x: Tensor, factor: Tensor) -> Tensor:
    """x <- f x, clamped to [0, 1]."""
    return x.mul_(_column(factor)).clamp_(0, 1)


def contrast_(x: Tensor, factor: Tensor) -> Tensor:
    """x <- f x + (1 - f) m, m = the mean gray of each image, clamped to [0, 1]."""
    mean = x.mean((2, 3)) @ x.new_tensor(GRAY_WEIGHTS)  # (n,): gray is linear, so average first
    return x.mul_(_column(factor)).add_(_column(mean * (1 - factor))).clamp_(0, 1)


def saturation_(x: Tensor, factor: Tensor) -> Tensor:
    """x <- f x + (1 - f) gray(x), clamped to [0, 1]."""
    grey = gray(x).mul_(_column(1 - factor))
    return x.mul_(_column(factor)).add_(grey).clamp_(0, 1)


def hue_(x: Tensor, turns: Tensor) -> Tensor:
    """Turn the HSV hue by `turns` (1 = full circle), keeping value and saturation.

    With V = max, m = min, C = V - m and v = (x - m) / C, the hue in sixths of a turn is
        h = 1 + v_G - v_R if B is the least, 3 + v_B - v_G if R is, 5 + v_R - v_B if G is,
    and the turned channel k with its pure hue at c = (0, 2, 4) is
        x_k = m + C clip(2 - |h' - c_k|, 0, 1), the distance taken around the circle of six.
    `torch.where` is several times slower than arithmetic here, so ceil(v) (0 for the least
    channel, 1 for any other) selects the case.
    """
    low = x.amin(1, keepdim=True)
    chroma = x.amax(1, keepdim=True).sub_(low)  # (n, 1, H, W)
    x.sub_(low).div_(chroma.clamp_min(torch.finfo(x.dtype).tiny))  # gray pixels: 0
    red, green, blue = x[:, 0:1], x[:, 1:2], x[:, 2:3]
    hue = torch.lerp((blue - green).add_(3), (red - blue).add_(5), red.ceil())
    hue = torch.lerp((green - red).add_(1), hue, blue.ceil())
    hue.div_(6).add_(_column(turns))
    hue.sub_(hue.floor())  # in turns, 0..1
    away = torch.sub(hue, x.new_tensor([0, 1 / 3, 2 / 3])[:, None, None], out=x).abs_()
    # the distance d around the circle is 1/2 - | away - 1/2 |, hence 2 - 6 d = 6 | away - 1/2 | - 1
    away.sub_(0.5).abs_().mul_(6).sub_(1).clamp_(0, 1)
    return away.mul_(chroma).add_(low)


OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    brightness_,
    contrast_,
    saturation_,
    hue_,
)


def jitter_(x: Tensor, apply: Tensor, factors: Tensor, order: Sequence[int]) -> Tensor:
    """Run the four operations in `order` on the images chosen by the mask `apply` (n,).

    `factors` (n, 4) belong to brightness, contrast, saturation and hue; mask and factors live on
    the CPU, where they were drawn, so that choosing the images never waits for a device.
    """
    chosen = apply.nonzero()[:, 0]
    f = factors[chosen].to(x)
    chosen = chosen.to(x.device)
    part = x.index_select(0, chosen)
    for index in order:
        OPERATIONS[index](part, f[:, index])
    return x.index_copy_(0, chosen, part)


def grayscale_(x: Tensor, apply: Tensor) -> Tensor:
    """Replace the images chosen by the CPU mask `apply` (n,) by their gray version."""
    chosen = apply.nonzero()[:, 0].to(x.device)
    grey = gray(x.index_select(0, chosen))
    return x.index_copy_(0, chosen, grey.expand(-1, 3, -1, -1))
