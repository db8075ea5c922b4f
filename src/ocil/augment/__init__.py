"""Batched augmentation of images in [0, 1], random per image, from an explicit generator.

| name     | what it does                                                                       |
|----------|------------------------------------------------------------------------------------|
| none     | nothing                                                                            |
| affine   | rotation +-14 degrees, scale 0.85..1.15, shift +-5 % of the side, no flip           |
| partial  | zero padding of 4 pixels and a random crop, mirrored with p 0.5                     |
| moderate | resized crop of 60..100 % of the area, mirrored with p 0.5, gray with p 0.2         |
| strong   | resized crop of 30..100 % of the area, mirrored with p 0.5, gray with p 0.25        |
| full     | resized crop of 20..100 % of the area, mirrored with p 0.5, colour jitter with p 0.8 |
|          | (brightness, contrast, saturation 0.6..1.4, hue +-0.1 turn), gray with p 0.2        |

`full`, `partial` and `moderate` are those of the common protocol of Wang et al., CVPR 2024
(arXiv 2312.00600), except that `partial` draws its offset per image; `strong` is that of OCM, OnPro
and, but for the mirroring, MOSE; `affine` is ours, for grey images. The random numbers are drawn on
the CPU, so many per call as the number of images says and no more, whatever comes out of them: the
state of the generator depends on the batch sizes only.
"""

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ocil.augment import colour, geometry
from ocil.errors import OcilError, suggest

Augment = Callable[[Tensor, torch.Generator], Tensor]

COLOUR_NAMES = ("full", "moderate", "strong")
FLIP, JITTER, GRAY = 0.5, 0.8, 0.2  # probabilities
FACTOR, HUE = (0.6, 1.4), (-0.1, 0.1)  # brightness, contrast, saturation; turns


def build(name: str) -> Augment:
    """The augmentation `name`: (images (n, C, H, W) in [0, 1], CPU generator) -> the same shape.

    The images given are never changed; `none` returns them as they are.
    """
    if name not in _RECIPES:
        known = ", ".join(NAMES)
        raise OcilError(
            f"There is no augmentation '{name}'; choose one of {known}.{suggest(name, NAMES)}"
        )

    def augment(x: Tensor, generator: torch.Generator) -> Tensor:
        check(name, x.shape[1:])
        if name != "none" and not x.is_floating_point():
            raise OcilError(
                f"Augmentation '{name}' got {x.dtype} images; divide by 255 for floats in [0, 1]."
            )
        return _RECIPES[name](x, generator) if len(x) else x

    return augment


def check(name: str, shape: Sequence[int]) -> None:
    """Raise OcilError if the augmentation `name` cannot work on items of this shape."""
    if name == "none":
        return
    if len(shape) != 3:
        raise OcilError(
            f"Augmentation '{name}' needs images (channels, height, width), but the items have "
            f"shape {tuple(shape)}; use --augment none."
        )
    if name in COLOUR_NAMES and shape[0] != 3:
        raise OcilError(
            f"Augmentation '{name}' changes colours and needs 3 channels, but the images have "
            f"{shape[0]}; use --augment affine."
        )


def _affine(x: Tensor, generator: torch.Generator) -> Tensor:
    u = torch.rand(len(x), 4, generator=generator)
    matrix = geometry.affine_matrix(u, *x.shape[-2:])
    return geometry.warp(x, matrix, "bilinear", "zeros").clamp_(0, 1)


def _partial(x: Tensor, generator: torch.Generator) -> Tensor:
    u = torch.rand(len(x), 3, generator=generator)
    box = geometry.shift_box(u[:, :2], *x.shape[-2:])
    matrix = geometry.crop_matrix(box, *x.shape[-2:], flip=u[:, 2] < FLIP)
    return geometry.warp(x, matrix, "nearest", "zeros")


def _resized_crop(x: Tensor, u: Tensor, area: tuple[float, float]) -> Tensor:
    box = geometry.crop_box(u, *x.shape[-2:], area=area)
    matrix = geometry.crop_matrix(box, *x.shape[-2:], flip=u[:, geometry.BOX_DRAWS] < FLIP)
    return geometry.warp(x, matrix, "bilinear", "border")


def _crop_and_gray(
    x: Tensor, generator: torch.Generator, area: tuple[float, float], gray: float
) -> Tensor:
    u = torch.rand(len(x), geometry.BOX_DRAWS + 2, generator=generator)
    out = _resized_crop(x, u, area)
    return colour.grayscale_(out, u[:, -1] < gray).clamp_(0, 1)


def _full(x: Tensor, generator: torch.Generator) -> Tensor:
    u = torch.rand(len(x), geometry.BOX_DRAWS + 7, generator=generator)
    order = torch.randperm(4, generator=generator).tolist()  # one order for the batch
    out = _resized_crop(x, u, area=(0.2, 1.0))
    apply, gray, f = u[:, -6] < JITTER, u[:, -5] < GRAY, u[:, -4:]
    low = torch.tensor([FACTOR[0]] * 3 + [HUE[0]])
    high = torch.tensor([FACTOR[1]] * 3 + [HUE[1]])
    colour.jitter_(out, apply, torch.lerp(low, high, f), order)
    return colour.grayscale_(out, gray).clamp_(0, 1)


_RECIPES: dict[str, Augment] = {
    "none": lambda x, generator: x,
    "affine": _affine,
    "full": _full,
    "partial": _partial,
    "moderate": functools.partial(_crop_and_gray, area=(0.6, 1.0), gray=GRAY),
    "strong": functools.partial(_crop_and_gray, area=(0.3, 1.0), gray=0.25),
}
NAMES = tuple(_RECIPES)
