"""Shift and scale of a network's input."""

import copy

import numpy as np
import pytest
import torch

from ocil import Classifier, OcilError
from ocil.learners.scaling import FIRST, Scale, Scaled

CPU = torch.device("cpu")


def vectors(n: int = 400) -> torch.Tensor:
    draw = np.random.default_rng(0)
    return torch.tensor(draw.normal(size=(n, 4)) * [1, 1e-3, 1e3, 1] + [0, 5, 1e5, 0]).float()


def watched(x: torch.Tensor, size: int) -> Scale:
    scale = Scale(x.shape[1:], CPU)
    for part in x.split(size):
        scale.watch(part)
    return scale


@pytest.mark.parametrize("size", [1, 7, 400])
def test_mean_and_deviation_of_the_first_samples(size: int) -> None:
    x = vectors()
    scale, first = watched(x, size), x[:FIRST].double()
    assert scale.seen == FIRST
    np.testing.assert_allclose(scale.mean, first.mean(0), rtol=1e-6, atol=1e-6)
    variance = first.var(0, correction=0)
    wanted = (variance + 0.01 * variance.median()).rsqrt()
    np.testing.assert_allclose(scale.gain, wanted, rtol=1e-4)


def test_far_is_far_and_never_huge() -> None:
    scale = watched(vectors(), 10)
    steps = torch.tensor([0.0, 2.0, 5.0, 50.0, 5e4, -5e4])[:, None]
    u = scale(scale.mean + steps / scale.gain)[:, 0]
    wanted = [0, 2, 5, 5 * (1 + np.log(10)), 5 * (1 + np.log(1e4)), -5 * (1 + np.log(1e4))]
    np.testing.assert_allclose(u, wanted, rtol=1e-4, atol=1e-6)


def test_vectors_of_length_one_keep_their_shape() -> None:
    x = torch.nn.functional.normalize(torch.randn(50, 9), dim=1)
    np.testing.assert_allclose(watched(x, 10)(x[:5] / 2), 3 * x[:5] / 2, rtol=1e-5)
    assert watched(torch.cat([x, 2 * x]), 10).unit is False


def test_images_by_channel() -> None:
    x = torch.randint(0, 256, (20, 3, 4, 5), dtype=torch.uint8)
    scale, shown = watched(x, 8), x.double() / 255
    np.testing.assert_allclose(scale.mean[:, 0, 0], shown.mean((0, 2, 3)), rtol=1e-5)
    assert scale(x.float() / 255).shape == x.shape


def test_state_and_copies() -> None:
    x = vectors(100)
    scale, other = watched(x, 10), Scale(x.shape[1:], CPU)
    other.load_state_dict(scale.state_dict(), 0)
    assert torch.equal(other(x), scale(x))
    layer = Scaled(scale)
    assert copy.deepcopy(torch.nn.Sequential(layer))[0].scale is scale
    bad = scale.state_dict() | {"total": torch.full((4,), torch.nan, dtype=torch.float64)}
    with pytest.raises(ValueError, match="no numbers"):
        other.load_state_dict(bad, 0)


def test_where_it_is_used() -> None:
    x, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2

    def scaled(**settings: object) -> bool:
        model = Classifier(memory=20, **settings).partial_fit(x, y)  # pyright: ignore
        return getattr(model._fitted().session.learner, "scale", None) is not None

    assert scaled(method="er") and scaled(method="er", net="identity", inputs="scaled")
    assert not scaled(method="er", scale=False) and not scaled(method="er", inputs="unit")
    assert not scaled(method="otc", net="identity") and not scaled(method="slda")
    images = Classifier("er", memory=20).partial_fit(np.zeros((40, 8, 8), np.uint8), y)
    assert images._fitted().session.learner.scale is None  # pyright: ignore
    with pytest.raises(OcilError, match="module of your own"):
        Classifier("er", net=torch.nn.Linear(3, 2), inputs="scaled").partial_fit(x, y)


def test_the_same_whatever_the_chunks() -> None:
    x, y = vectors().numpy(), np.arange(400) % 3
    whole = Classifier("er", memory=20, width=8).partial_fit(x, y)
    parts = Classifier("er", memory=20, width=8)
    for i in range(0, 400, 37):
        parts.partial_fit(x[i : i + 37], y[i : i + 37])
    assert whole.state_sha256() == parts.state_sha256()
