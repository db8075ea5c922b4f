"""Random features against their formula in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import nets
from ocil.nets.random_features import RandomFeatures, RandomSettings


def built(dim: int, width: int = 40, seed: int = 0) -> RandomFeatures:
    draw = torch.Generator().manual_seed(seed)
    net = nets.build("random", (dim,), width=width, generator=draw)
    assert isinstance(net, RandomFeatures)
    return net


def vectors(n: int, dim: int) -> Tensor:
    """Columns of very different sizes, and one that never changes."""
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(1)) * torch.logspace(-2, 3, dim)
    x[:, 0] = 7.0
    return x + 5


def test_against_the_formula() -> None:
    net, x = built(6), vectors(80, 6)
    net.fit(x)
    rows = x.double()
    variance = rows.var(0, correction=0)
    spread = (variance + 0.01 * variance.median()).sqrt()
    spread[0] = 1.0
    new = vectors(200, 6)[80:] * 3
    u = ((new.double() - rows.mean(0)) / spread).clamp(-5, 5)
    assert bool((u.abs() == 5).any())
    wanted = (u @ net.weight.double().T + net.bias.double()).relu()
    wanted = (wanted - net.shift) * net.scale
    torch.testing.assert_close(net(new).double(), wanted, rtol=1e-4, atol=1e-4)
    z = net(x)
    assert float(z.mean(0).abs().max()) < 1e-4
    assert 0.9 < float(z.std(0).median()) < 1.05


def test_fourier_features_stand_for_a_gaussian_kernel() -> None:
    net = nets.build(
        "random",
        (8,),
        width=20_000,
        generator=torch.Generator().manual_seed(0),
        options=RandomSettings(kind="fourier"),
    )
    assert isinstance(net, RandomFeatures)
    x = torch.randn(12, 8, generator=torch.Generator().manual_seed(2))
    z = net(x)  # before it is fitted: cos(W x + b)
    found = 2 * z @ z.T / 20_000
    wanted = (-torch.cdist(x, x).square() / 8).exp()
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.03)


def test_embeddings_of_unit_length_keep_their_shape() -> None:
    net, x = built(16), F.normalize(vectors(30, 16), dim=1)
    net.fit(x)
    assert not net.mean.any()
    assert bool((net.gain == 4).all())


def test_an_item_has_the_same_bits_in_any_company() -> None:
    net, x = built(33, 200), vectors(60, 33)
    net.fit(x)
    together = net(x)
    for size in (1, 7, 16):
        assert torch.equal(torch.cat([net(part) for part in x.split(size)]), together)


def test_draws_belong_to_the_seed_and_fits_to_the_items() -> None:
    x = vectors(20, 5)
    one, again, other = built(5), built(5), built(5, seed=1)
    again.fit(x[:3])
    for net in (one, again, other):
        net.fit(x)
    for name, value in one.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert not torch.equal(one.weight, other.weight)


@pytest.mark.parametrize("x", [torch.zeros(4, 5), torch.ones(1, 5)])
def test_items_without_any_difference_are_no_trouble(x: Tensor) -> None:
    net = built(5)
    net.fit(x)
    assert bool(net(x).isfinite().all())
    assert net(vectors(3, 5)).std() > 0


def test_images_are_flattened() -> None:
    net = nets.build("random", (1, 4, 4), width=9, generator=torch.Generator())
    assert net(torch.rand(3, 1, 4, 4)).shape == (3, 9)
