"""Names, errors, draws and probabilities of the augmentations."""

from __future__ import annotations

import math

import pytest
import torch

from ocil import augment
from ocil.errors import OcilError

SHAPES = [(3, 32, 32), (3, 20, 36), (1, 28, 28)]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def usable(name: str, shape: tuple[int, ...]) -> bool:
    return shape[0] == 3 or name not in augment.COLOUR_NAMES


CASES = [(name, shape) for name in augment.NAMES for shape in SHAPES if usable(name, shape)]


def within(count: int, n: int, p: float, deviations: float = 4.5) -> bool:
    return abs(count - n * p) <= deviations * math.sqrt(n * p * (1 - p))


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_contract_of_every_augmentation(name: str, shape: tuple[int, ...]) -> None:
    x = torch.rand(50, *shape, generator=seeded(1)).round(decimals=1)  # many exact zeros and ones
    before = x.clone()
    run = augment.build(name)
    first = run(x, seeded())
    assert torch.equal(x, before)
    assert first.shape == x.shape
    assert first.dtype == x.dtype
    assert first.min() >= 0
    assert first.max() <= 1
    assert torch.equal(first, run(x, seeded()))
    assert torch.equal(first, augment.build(name)(x, seeded()))
    if name != "none":
        assert not torch.equal(first, run(x, seeded(2)))


@pytest.mark.parametrize("name", augment.NAMES)
def test_draws_depend_on_the_number_of_images_only(name: str) -> None:
    run, states = augment.build(name), []
    for x in (torch.zeros(9, 3, 8, 8), torch.rand(9, 3, 16, 12), torch.ones(9, 3, 32, 32)):
        generator = seeded(5)
        run(x, generator)
        states.append(generator.get_state())
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])


@pytest.mark.parametrize("name", augment.NAMES)
def test_global_generator_is_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    augment.build(name)(torch.rand(4, 3, 8, 8, generator=seeded()), seeded())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", [name for name in augment.NAMES if name != "none"])
def test_random_per_image_and_not_per_batch(name: str) -> None:
    one = torch.rand(1, 3, 16, 16, generator=seeded(3))
    out = augment.build(name)(one.expand(40, -1, -1, -1), seeded())
    different = len({tuple(image.flatten().tolist()) for image in out})
    assert different > 30


@pytest.mark.parametrize("name", augment.NAMES)
def test_empty_batch_and_single_pixel(name: str) -> None:
    run = augment.build(name)
    assert run(torch.rand(0, 3, 8, 8), seeded()).shape == (0, 3, 8, 8)
    pixel = run(torch.rand(5, 3, 1, 1, generator=seeded()), seeded())
    assert torch.isfinite(pixel).all()


@pytest.mark.parametrize("name", augment.NAMES)
def test_channels_last_gives_the_same_bits(name: str) -> None:
    x = torch.rand(12, 3, 32, 32, generator=seeded())
    run = augment.build(name)
    other = run(x.contiguous(memory_format=torch.channels_last), seeded())
    assert torch.equal(run(x, seeded()), other)


def test_probabilities_of_full() -> None:
    n = 20_000
    x = torch.tensor([0.6, 0.4, 0.2])[:, None, None].expand(n, 3, 3, 3)
    out = augment.build("full")(x, seeded())[:, :, 1, 1]  # crop and flip change nothing here
    gray = (out.amax(1) - out.amin(1)) < 1e-6
    jittered = ((out - x[:, :, 1, 1]).abs().amax(1) > 1e-6) & ~gray
    assert within(int(gray.sum()), n, 0.2)
    assert within(int(jittered.sum()), n, 0.8 * 0.8)


def test_jitter_factors_of_full(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {"orders": set()}

    def spy(x, apply, factors, order):
        seen["factors"] = factors
        seen["orders"].add(tuple(order))
        return x

    monkeypatch.setattr(augment.colour, "jitter_", spy)
    run, generator = augment.build("full"), seeded()
    run(torch.rand(4000, 3, 4, 4), generator)
    factors = seen["factors"]
    for column, (low, high) in enumerate([(0.6, 1.4)] * 3 + [(-0.1, 0.1)]):
        values = factors[:, column]
        width = high - low
        assert low <= values.min() < low + 0.01 * width
        assert high - 0.01 * width < values.max() <= high
        assert abs(float(values.mean()) - (low + high) / 2) < 0.03 * width
    assert abs(torch.corrcoef(factors.T) - torch.eye(4)).max() < 0.08
    for _ in range(400):
        run(torch.rand(1, 3, 4, 4), generator)
    assert len(seen["orders"]) == 24


@pytest.mark.parametrize(("name", "p"), [("moderate", 0.2), ("strong", 0.25)])
def test_crops_without_jitter_keep_colours_and_gray_some(name: str, p: float) -> None:
    n = 20_000
    x = torch.tensor([0.6, 0.4, 0.2])[:, None, None].expand(n, 3, 3, 3)
    out = augment.build(name)(x, seeded())
    gray = (out[:, 0] == out[:, 2]).flatten(1).all(1)
    assert within(int(gray.sum()), n, p)
    torch.testing.assert_close(out[~gray], x[~gray])
    assert out[gray].mean().item() == pytest.approx(0.299 * 0.6 + 0.587 * 0.4 + 0.114 * 0.2)


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(OcilError, match="Did you mean 'affine'"):
        augment.build("afine")


@pytest.mark.parametrize("name", augment.COLOUR_NAMES)
def test_colour_on_grey_images_names_the_remedy(name: str) -> None:
    with pytest.raises(OcilError, match=r"3 channels.*have 1.*--augment affine"):
        augment.build(name)(torch.rand(2, 1, 28, 28), seeded())


def test_vectors_can_only_be_left_alone() -> None:
    x = torch.rand(3, 17)
    assert augment.build("none")(x, seeded()) is x
    for name in augment.NAMES[1:]:
        with pytest.raises(OcilError, match=r"\(17,\).*--augment none"):
            augment.build(name)(x, seeded())
        with pytest.raises(OcilError, match="--augment none"):
            augment.check(name, (17,))


def test_bytes_are_refused() -> None:
    with pytest.raises(OcilError, match="divide by 255"):
        augment.build("full")(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), seeded())
