"""Colour operations against per-pixel references: colorsys and plain loops."""

from __future__ import annotations

import colorsys
import itertools

import numpy as np
import pytest
import torch

from ocil.augment import colour

PURE = {
    "red": (1.0, 0.0, 0.0),
    "yellow": (1.0, 1.0, 0.0),
    "green": (0.0, 1.0, 0.0),
    "cyan": (0.0, 1.0, 1.0),
    "blue": (0.0, 0.0, 1.0),
    "magenta": (1.0, 0.0, 1.0),
}


def luma(pixel: np.ndarray) -> float:
    return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]


def mean_gray(image: np.ndarray) -> float:
    _, height, width = image.shape
    total = sum(luma(image[:, i, j]) for i in range(height) for j in range(width))
    return total / (height * width)


def turned(pixel: np.ndarray, turns: float) -> tuple[float, float, float]:
    hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
    return colorsys.hsv_to_rgb((hue + turns) % 1, saturation, value)


def reference(image: np.ndarray, operation: int, factor: float) -> np.ndarray:
    """One operation on one image (3, H, W) in double precision, pixel by pixel."""
    out, mean = np.empty_like(image), mean_gray(image)
    for i, j in itertools.product(*map(range, image.shape[1:])):
        pixel = image[:, i, j]
        if operation == 0:
            out[:, i, j] = factor * pixel
        elif operation == 1:
            out[:, i, j] = mean + factor * (pixel - mean)
        elif operation == 2:
            out[:, i, j] = luma(pixel) + factor * (pixel - luma(pixel))
        else:
            out[:, i, j] = turned(pixel, factor)
    return out.clip(0, 1)


def images(n: int, side: int = 6, seed: int = 0) -> torch.Tensor:
    """Random images with many exact ties, zeros, ones and gray pixels among them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 3, side, side, generator=generator)
    x[:, :, ::2] = x[:, :, ::2].mul(4).round().div(4)
    return x


@pytest.mark.parametrize("operation", range(4))
def test_operation_equals_its_reference(operation: int) -> None:
    x = images(8)
    scale = torch.linspace(-1.7, 1.7, 8) if operation == 3 else torch.linspace(0.6, 1.4, 8)
    got = colour.OPERATIONS[operation](x.clone(), scale)
    want = [
        reference(image.double().numpy(), operation, float(f))
        for image, f in zip(x, scale, strict=True)
    ]
    np.testing.assert_allclose(got.numpy(), np.stack(want), atol=3e-6)


def test_hue_of_pure_colours_walks_round_the_circle() -> None:
    colours = torch.tensor(list(PURE.values()))  # in order of hue, a sixth of a turn apart
    x = colours.T.reshape(1, 3, 1, 6)
    for sixths in range(-6, 7):
        got = colour.hue_(x.clone(), torch.tensor([sixths / 6]))
        np.testing.assert_allclose(got[0, :, 0].T, colours.roll(-sixths, 0), atol=2e-6)


def test_hue_leaves_gray_pixels_value_and_chroma() -> None:
    gray = torch.linspace(0, 1, 11).expand(3, 11).reshape(1, 3, 1, 11).contiguous()
    assert torch.equal(colour.hue_(gray.clone(), torch.tensor([0.3])), gray)
    x = images(5)
    out = colour.hue_(x.clone(), torch.linspace(-0.1, 0.1, 5))
    torch.testing.assert_close(out.amax(1), x.amax(1))
    torch.testing.assert_close(out.amin(1), x.amin(1))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)])
def test_jitter_runs_in_order_on_the_chosen_images_only(order: tuple[int, ...]) -> None:
    x, apply = images(6, seed=2), torch.tensor([True, False, True, True, False, True])
    generator = torch.Generator().manual_seed(4)
    u = torch.rand(6, 4, generator=generator)
    factors = 0.6 + 0.8 * u
    factors[:, 3] = 0.2 * u[:, 3] - 0.1
    got = colour.jitter_(x.clone(), apply, factors, order)
    assert torch.equal(got[~apply], x[~apply])
    for index in apply.nonzero()[:, 0].tolist():
        want = x[index].double().numpy()
        for operation in order:
            want = reference(want, operation, float(factors[index, operation]))
        np.testing.assert_allclose(got[index].numpy(), want, atol=5e-6)


def test_gray_weights_and_grayscale() -> None:
    pure = torch.eye(3)[:, :, None, None]
    np.testing.assert_allclose(colour.gray(pure).flatten(), [0.299, 0.587, 0.114], rtol=1e-6)
    x, apply = images(4), torch.tensor([False, True, True, False])
    out = colour.grayscale_(x.clone(), apply)
    assert torch.equal(out[~apply], x[~apply])
    assert torch.equal(out[apply], colour.gray(x[apply]).expand(-1, 3, -1, -1))


def test_nothing_chosen_changes_nothing() -> None:
    x, none = images(3), torch.zeros(3, dtype=torch.bool)
    assert torch.equal(colour.jitter_(x.clone(), none, torch.ones(3, 4), range(4)), x)
    assert torch.equal(colour.grayscale_(x.clone(), none), x)
