"""Where each pixel of an augmented image comes from: per-image matrices and one sampling pass.

A matrix (2, 3) maps the output pixel (j, i, 1) (column, row) to a place (x, y) in the source,
counted in pixels, with 0 the centre of the first one. All draws `u` are uniform in [0, 1).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

TRIES = 10
BOX_DRAWS = 2 * TRIES + 2  # (area, aspect) per try, then the place
ASPECT = 4 / 3  # widest width / height of a resized crop; the narrowest is its inverse
PADDING = 4  # pixels
ROTATION, SCALE, SHIFT = 14.0, 0.15, 0.05  # degrees, +- factor, fraction of the side


def warp(x: Tensor, matrix: Tensor, mode: str, padding: str) -> Tensor:
    """Sample x (n, C, H, W) at the places given by matrix (n, 2, 3); a new tensor of x's shape.

    The grid of an affine map is a row term plus a column term, so it costs one addition per place
    where a matrix product over all pixels would cost more than the sampling itself.
    """
    n, _, height, width = x.shape
    m = matrix.to(x)
    grid = x.new_empty(n, height, width, 2)
    column = torch.arange(width, device=x.device, dtype=x.dtype)
    row = torch.arange(height, device=x.device, dtype=x.dtype)
    for axis, side in enumerate((width, height)):
        # grid_sample (align_corners=False) wants -1..1 from edge to edge: (2 p + 1) / side - 1
        a, b, c = (m[:, axis] * (2 / side)).unbind(1)
        across = torch.addcmul((c + (1 / side - 1))[:, None], a[:, None], column)  # (n, W)
        down = b[:, None] * row  # (n, H)
        torch.add(across[:, None, :], down[:, :, None], out=grid[..., axis])
    return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=False)


def crop_box(u: Tensor, height: int, width: int, area: tuple[float, float]) -> Tensor:
    """Boxes (n, 4) = left, top, width, height in pixels from u (n, >= BOX_DRAWS).

    Area fraction uniform in `area`, aspect log-uniform in 3/4..4/3, the first of ten tries that
    fits, placed uniformly. When none fits (once in 10^8 squares) the last is cut to the image.
    """
    tries = u[:, : 2 * TRIES].unflatten(1, (TRIES, 2))  # (n, 10, 2)
    pixels = torch.lerp(torch.tensor(area[0]), torch.tensor(area[1]), tries[..., 0])
    pixels = pixels * (height * width)
    aspect = torch.exp((2 * tries[..., 1] - 1) * math.log(ASPECT))
    box_width, box_height = (pixels * aspect).sqrt(), (pixels / aspect).sqrt()  # (n, 10)
    fits = (box_width <= width) & (box_height <= height)
    fits[:, -1] = True
    first = fits.to(torch.uint8).argmax(1, keepdim=True)
    w = box_width.gather(1, first)[:, 0].clamp(1, width)
    h = box_height.gather(1, first)[:, 0].clamp(1, height)
    left, top = u[:, 2 * TRIES] * (width - w), u[:, 2 * TRIES + 1] * (height - h)
    return torch.stack((left, top, w, h), 1)


def crop_matrix(box: Tensor, height: int, width: int, flip: Tensor) -> Tensor:
    """Matrices (n, 2, 3) that blow the boxes (n, 4) up to the whole image, mirrored where `flip`.

    The centres of the outermost pixels of box and output coincide (align_corners):
    x = left + j (w - 1) / (W - 1), read from the right when mirrored; y likewise.
    """
    left, top, w, h = box.unbind(1)
    step = (w - 1) / max(width - 1, 1)
    matrix = box.new_zeros(len(box), 2, 3)
    matrix[:, 0, 0] = torch.where(flip, -step, step)
    matrix[:, 0, 2] = left + torch.where(flip, w - 1, torch.zeros_like(w))
    matrix[:, 1, 1] = (h - 1) / max(height - 1, 1)
    matrix[:, 1, 2] = top
    return matrix


def shift_box(u: Tensor, height: int, width: int) -> Tensor:
    """Boxes (n, 4) of the size of the image, shifted by whole pixels in -4..4 from u (n, 2)."""
    shift = (u * (2 * PADDING + 1)).floor() - PADDING
    return torch.cat((shift, shift.new_tensor([width, height]).expand_as(shift)), 1)


def affine_matrix(u: Tensor, height: int, width: int) -> Tensor:
    """Matrices (n, 2, 3) of rotation and scaling about the centre c, then shift t, from u (n, 4).

    out(p) = in(c + R(-a) (p - c - t) / s) with a in +-14 degrees, s in 0.85..1.15 and t in
    +-5 % of the side in each axis.
    """
    v = 2 * u - 1
    angle, scale = v[:, 0] * math.radians(ROTATION), 1 + SCALE * v[:, 1]
    cos, sin = angle.cos() / scale, angle.sin() / scale
    linear = torch.stack((cos, sin, -sin, cos), 1).unflatten(1, (2, 2))  # (n, 2, 2)
    centre = torch.tensor([(width - 1) / 2, (height - 1) / 2])
    moved = centre + v[:, 2:] * SHIFT * torch.tensor([width, height])  # (n, 2): where c lands
    offset = centre - (linear @ moved[:, :, None])[:, :, 0]
    return torch.cat((linear, offset[:, :, None]), 2)
