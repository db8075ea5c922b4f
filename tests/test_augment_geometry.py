"""Geometry read back from what the augmentations did to images with a known content."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ocil import augment
from ocil.augment import geometry


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def ramps(n: int, height: int, width: int) -> torch.Tensor:
    """Channel 0 counts columns and channel 1 rows, both from 0 to 1; channel 2 is empty."""
    x = torch.zeros(n, 3, height, width)
    x[:, 0] = torch.linspace(0, 1, width)
    x[:, 1] = torch.linspace(0, 1, height)[:, None]
    return x


def boxes(out: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Signed width (negative = mirrored), height, left and top in pixels, from cropped ramps."""
    height, width = out.shape[-2:]
    across, down = out[:, 0, 0] * (width - 1), out[:, 1, :, 0] * (height - 1)
    span = across[:, -1] - across[:, 0]
    box_width = (span.abs() + 1) * span.sign()
    box_height = down[:, -1] - down[:, 0] + 1
    return box_width, box_height, torch.minimum(across[:, 0], across[:, -1]), down[:, 0]


def accepted_areas(low: float, high: float, n: int = 200_000) -> np.ndarray:
    """Area fractions of a square's crop by plain rejection."""
    rng = np.random.default_rng(0)
    area = rng.uniform(low, high, n)
    aspect = np.exp(rng.uniform(-math.log(4 / 3), math.log(4 / 3), n))
    return area[(area * aspect <= 1) & (area / aspect <= 1)]


@pytest.mark.parametrize(("name", "low"), [("full", 0.2), ("strong", 0.3), ("moderate", 0.6)])
def test_crop_of_a_ramp_gives_the_box(
    name: str, low: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(augment, "JITTER", 0.0)
    monkeypatch.setattr(augment.colour, "grayscale_", lambda x, apply: x)
    n, side = 3000, 32
    out = augment.build(name)(ramps(n, side, side), seeded())
    width, height, left, top = boxes(out)
    mirrored = int((width < 0).sum())
    width = width.abs()
    assert abs(mirrored - n / 2) < 4.5 * math.sqrt(n / 4)
    area, aspect = width * height / side**2, width / height
    assert low - 1e-4 <= area.min() < low + 0.01
    assert 0.97 < area.max() <= 1 + 1e-4
    assert 0.75 - 1e-4 <= aspect.min() < 0.76
    assert 1.31 < aspect.max() <= 4 / 3 + 1e-4
    assert abs(float(aspect.log().mean())) < 0.02
    want = accepted_areas(low, 1.0)
    quantiles = [0.1, 0.25, 0.5, 0.75, 0.9]
    np.testing.assert_allclose(
        np.quantile(area, quantiles), np.quantile(want, quantiles), atol=0.03
    )
    assert left.min() >= -1e-4
    assert top.min() >= -1e-4
    assert (left + width).max() <= side + 1e-3
    assert (top + height).max() <= side + 1e-3
    for place in (left / (side - width), top / (side - height)):  # uniform over what is free
        np.testing.assert_allclose(np.quantile(place, quantiles), quantiles, atol=0.05)
    rows = torch.diff(out[:, 0], dim=-1)  # equal steps: the crop is a straight resize
    assert float((rows - rows[:, :1, :1]).abs().max()) < 1e-5


def test_crop_of_oblong_images_stays_inside_with_pixel_aspect() -> None:
    u = torch.rand(2000, geometry.BOX_DRAWS, generator=seeded())
    left, top, width, height = geometry.crop_box(u, 24, 40, (0.2, 1.0)).unbind(1)
    assert (left + width).max() <= 40 + 1e-4
    assert (top + height).max() <= 24 + 1e-4
    aspect = width / height
    assert 0.75 - 1e-4 <= aspect.min() <= aspect.max() <= 4 / 3 + 1e-4


def test_whole_box_is_the_identity_and_mirror_is_torch_flip() -> None:
    x = torch.rand(2, 3, 20, 33, generator=seeded())
    box = torch.tensor([[0.0, 0.0, 33.0, 20.0]] * 2)
    flip = torch.tensor([False, True])
    matrix = geometry.crop_matrix(box, 20, 33, flip)
    out = geometry.warp(x, matrix, "bilinear", "border")
    torch.testing.assert_close(out[0], x[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(out[1], x[1].flip(-1), atol=1e-5, rtol=0)


def test_partial_is_a_padded_crop_per_image_half_of_them_mirrored() -> None:
    n, height, width = 1500, 12, 10
    image = torch.rand(3, height, width, generator=seeded(1))
    padded = torch.zeros(3, height + 8, width + 8)
    padded[:, 4:-4, 4:-4] = image
    candidates, labels = [], []
    for top in range(9):
        for left in range(9):
            crop = padded[:, top : top + height, left : left + width]
            candidates += [crop, crop.flip(-1)]
            labels += [(top, left, 0), (top, left, 1)]
    out = augment.build("partial")(image.expand(n, -1, -1, -1), seeded())
    distance = torch.cdist(out.flatten(1), torch.stack(candidates).flatten(1))
    best, where = distance.min(1)
    assert best.max() < 1e-2  # cdist's own rounding; the next line is exact
    assert torch.equal(out, torch.stack(candidates)[where])
    found = np.array(labels)[where.numpy()]
    for column in (0, 1):
        counts = np.bincount(found[:, column], minlength=9)
        assert np.abs(counts - n / 9).max() < 4.5 * math.sqrt(n * 8 / 81)
    assert abs(found[:, 2].sum() - n / 2) < 4.5 * math.sqrt(n / 4)


def moments(out: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mass (n,), centre (n, 2) as (x, y) and covariance (n, 2, 2) of images (n, 1, H, W)."""
    height, width = out.shape[-2:]
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    places = torch.stack((x, y), -1).reshape(-1, 2).double()
    weights = out.flatten(1).double()
    mass = weights.sum(1)
    centre = weights @ places / mass[:, None]
    away = places - centre[:, None]
    covariance = torch.einsum("np,npa,npb->nab", weights, away, away) / mass[:, None, None]
    return mass, centre, covariance


def blob(n: int, height: int, width: int, deviations: tuple[float, float]) -> torch.Tensor:
    x = torch.arange(width) - (width - 1) / 2
    y = torch.arange(height) - (height - 1) / 2
    image = torch.exp(-((x / deviations[0]) ** 2 + (y[:, None] / deviations[1]) ** 2) / 2)
    return image.expand(n, 1, height, width)


@pytest.mark.parametrize("shape", [(28, 28), (28, 40)])
def test_affine_bounds_of_angle_scale_and_shift(shape: tuple[int, int]) -> None:
    n, (height, width) = 1500, shape
    x = blob(n, height, width, (3.6, 1.8))
    mass, centre, covariance = moments(augment.build("affine")(x, seeded()))
    scale = (mass / moments(x[:1])[0]).sqrt()
    assert 0.84 <= scale.min() < 0.86
    assert 1.14 < scale.max() <= 1.16
    cross, spread = covariance[:, 0, 1], covariance[:, 0, 0] - covariance[:, 1, 1]
    angle = torch.rad2deg(torch.atan2(2 * cross, spread) / 2)
    assert -14.3 <= angle.min() < -13
    assert 13 < angle.max() <= 14.3
    assert abs(float(angle.mean())) < 1
    for axis, side in enumerate((width, height)):
        shift = (centre[:, axis] - (side - 1) / 2) / side
        assert -0.051 <= shift.min() < -0.047
        assert 0.047 < shift.max() <= 0.051
        assert abs(float(shift.mean())) < 0.004
    drawn = torch.stack((scale, angle, centre[:, 0], centre[:, 1]))
    assert abs(torch.corrcoef(drawn) - torch.eye(4)).max() < 0.12


def test_affine_turns_without_shearing_oblong_images() -> None:
    # bilinear sampling adds up to 1/4 pixel to a variance: under 1 % of 36, and no edge is near
    x = blob(300, 64, 128, (6.0, 6.0))
    _, _, covariance = moments(augment.build("affine")(x, seeded()))
    assert (covariance[:, 0, 1] / covariance[:, 0, 0]).abs().max() < 0.01
    assert (covariance[:, 1, 1] / covariance[:, 0, 0] - 1).abs().max() < 0.01


def test_affine_never_mirrors_and_fills_with_zeros() -> None:
    x = torch.zeros(400, 1, 28, 28)
    x[:, :, 4:24, 4:10] = 1  # on the left, 10 pixels from the middle
    _, centre, _ = moments(augment.build("affine")(x, seeded()))
    assert centre[:, 0].max() < 12
    corners = augment.build("affine")(torch.ones(400, 1, 28, 28), seeded())[:, 0, ::27, ::27]
    assert (corners.flatten(1).amin(1) == 0).float().mean() > 0.5
