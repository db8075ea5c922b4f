"""Whitened patches against the plain chain of operations, and equal bits however images come."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import nets
from ocil.errors import OcilError
from ocil.nets import patches
from ocil.nets.patches import Patches

SHAPES = [(3, 32, 32), (1, 28, 28), (1, 8, 8), (3, 8, 8), (1, 9, 30), (3, 17, 100)]


def images(n: int, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Smooth noise from 0 to 1."""
    noise = torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))
    return F.avg_pool2d(noise, 3, 1, 1)


def built(shape: tuple[int, ...], width: int = 12, seed: int = 0) -> Patches:
    net = nets.build("patches", shape, width=width, generator=torch.Generator().manual_seed(seed))
    assert isinstance(net, Patches)
    return net


def plain(net: Patches, x: Tensor) -> Tensor:
    """Response maps of whole images in float64, then thresholds, then means; no shift and scale."""
    x, side = x.double(), net.side
    filters = net.filters.double().unflatten(1, (x.shape[1], side, side))
    columns = F.unfold(x, side)  # (n, numbers, places)
    centred = columns - columns.mean(1, keepdim=True)
    columns = centred / (centred.square().mean(1, keepdim=True) + 100 / 255**2).sqrt()
    maps = torch.einsum("fp,npl->nfl", filters.flatten(1), columns) + net.offset.double()
    maps = maps.unflatten(2, [n - side + 1 for n in x.shape[2:]])  # (n, F, rows, columns)
    found = []
    for rows, spans in net.regions:
        part = maps[..., rows, spans].flatten(2)
        found += [(part - 0.25).clamp(min=0).mean(2), (-part - 0.25).clamp(min=0).mean(2)]
    return torch.cat(found, 1)


@pytest.mark.parametrize("shape", SHAPES)
def test_against_the_plain_chain(shape: tuple[int, ...]) -> None:
    net, x = built(shape), images(6, shape)
    net.fit(x)
    small = x.double() if max(shape) <= 64 else F.adaptive_avg_pool2d(x.double(), net.size)
    wanted = plain(net, small)
    if shape[0] == 3:
        wanted = (wanted + plain(net, small.flip(3))) / 2
    wanted = (wanted - net.shift) * net.scale
    torch.testing.assert_close(net(x).double(), wanted, rtol=1e-4, atol=1e-4)
    assert net(x).shape == (6, net.features)
    assert (net.features == 12 * 2 * 9) == (shape == (1, 28, 28))


def test_every_option_does_what_it_says() -> None:
    shape, x = (3, 16, 16), images(4, (3, 16, 16))
    options = patches.PatchSettings(size=4, pool=3, threshold=0.5, mirror="no")
    net = Patches(shape, 7, options)
    net.fit(x)
    assert net.features == 2 * 9 * 7
    assert net.filters.shape == (7, 3 * 4 * 4)
    assert not torch.equal(net(x), net(x.flip(3)))
    usual, other = Patches(shape, 7), Patches(shape, 7, patches.PatchSettings(threshold=0.5))
    other.seed.copy_(usual.seed)
    for each in (usual, other):
        each.fit(x)
    assert torch.equal(usual.filters, other.filters)
    assert not torch.equal(usual(x), other(x))
    torch.testing.assert_close(usual(x), usual(x.flip(3)), rtol=1e-4, atol=1e-4)
    grey = Patches((1, 16, 16), 7, patches.PatchSettings(mirror="yes"))
    grey.fit(x[:, :1])
    torch.testing.assert_close(grey(x[:, :1]), grey(x[:, :1].flip(3)), rtol=1e-4, atol=1e-4)


def test_without_a_width_there_are_as_many_filters_as_make_2400_features() -> None:
    assert [Patches(shape).features for shape in SHAPES[:2]] == [2400, 2394]


def test_small_images_have_three_filters_a_pixel() -> None:
    assert Patches((1, 8, 8)).features == 8 * 3 * 64


@pytest.mark.parametrize("options", [{"size": 20}, {"pool": 12}, {"size": 9}])
def test_options_that_leave_no_place_are_one_sentence(options: dict[str, int]) -> None:
    with pytest.raises(OcilError, match=r"too few for .* regions; lower patches.size or"):
        Patches((3, 9, 30), 5, patches.PatchSettings(**options))  # type: ignore[arg-type]


def test_every_place_is_in_one_region() -> None:
    for shape in SHAPES:
        net = built(shape)
        places = torch.zeros([n - net.side + 1 for n in net.size])
        for region in net.regions:
            places[region] += 1
        assert bool((places == 1).all())


def test_large_images_are_averaged_down() -> None:
    assert built((3, 128, 128)).size == (64, 64)
    assert built((3, 100, 300)).size == (21, 64)
    assert built((1, 64, 40)).size == (64, 40)
    net, x = built((3, 128, 128), 4), images(3, (3, 128, 128))
    net.fit(x)
    same = built((3, 64, 64), 4)
    same.fit(F.avg_pool2d(x, 2))
    torch.testing.assert_close(net(x), same(F.avg_pool2d(x, 2)), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_an_image_has_the_same_bits_in_any_company(shape: tuple[int, ...]) -> None:
    net, x = built(shape), images(40, shape)
    net.fit(x)
    together = net(x)
    for size in (1, 7, 16):
        assert torch.equal(torch.cat([net(part) for part in x.split(size)]), together)
    assert torch.equal(net(x[5:6].clone()), together[5:6])


def test_equal_images_make_equal_dictionaries_and_other_seeds_others() -> None:
    x = images(20, (3, 12, 12))
    one, again, other = built((3, 12, 12)), built((3, 12, 12)), built((3, 12, 12), seed=1)
    again.fit(x[:5])  # what was made before does not matter
    for net in (one, again, other):
        net.fit(x)
    for name, value in one.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert not torch.equal(one.filters, other.filters)
    assert int(one.fitted) == 20


def test_features_have_mean_zero_and_at_most_deviation_one_over_what_made_them() -> None:
    net, x = built((1, 12, 12)), images(50, (1, 12, 12))
    net.fit(x)
    z = net(x)
    assert float(z.mean(0).abs().max()) < 1e-3
    assert 0.5 < float(z.std(0).median()) <= 1.05


def test_whitened_patches_are_white() -> None:
    """Responses to sampled patches have the covariance W Z C Z W' of the formula."""
    net, x = built((3, 16, 16), 30), images(30, (3, 16, 16))
    net.fit(x)
    sampled = net._sample(x, torch.Generator().manual_seed((int(net.seed) + 30) % 2**63))
    mean, values, vectors = patches._principal(sampled)
    z = vectors @ torch.diag((values + 0.1).rsqrt()) @ vectors.T
    w = torch.linalg.solve(z, net.filters.double().T).T
    torch.testing.assert_close(w.norm(dim=1), torch.ones(30).double(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        net.offset.double()[:, 0], -(net.filters.double() @ mean), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_images_without_any_content_are_no_trouble(value: float) -> None:
    net = built((3, 8, 8))
    x = torch.full((3, 3, 8, 8), value)
    net.fit(x)
    assert bool(net(x).isfinite().all())
    assert bool(net(images(3, (3, 8, 8))).std() > 0)


@pytest.mark.parametrize("shape", [(64,), (1, 7, 20), (3, 20, 7)])
def test_what_it_cannot_read_is_one_sentence(shape: tuple[int, ...]) -> None:
    with pytest.raises(OcilError, match=r"images of 8 pixels a side and more.*take random"):
        built(shape)


@pytest.mark.parametrize("name", ["patches", "random"])
def test_sizes_are_known_without_allocating(name: str) -> None:
    with torch.device("meta"):
        seed = torch.Generator(device="cpu").manual_seed(0)
        net = nets.build(name, (3, 32, 32), width=400, generator=seed)
    real = nets.build(name, (3, 32, 32), width=400, generator=torch.Generator())
    assert {k: v.shape for k, v in net.state_dict().items()} == {
        k: v.shape for k, v in real.state_dict().items()
    }
