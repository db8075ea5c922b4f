"""Networks: sizes and work as published, features per stage, weights from the generator alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from ocil import nets
from ocil.errors import OcilError
from ocil.nets.resnet import ResNet18, Shortcut


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def multiplications(net: nn.Module, shape: tuple[int, ...]) -> int:
    """Multiply-accumulate operations of convolutions and linear layers for one item."""
    total = 0

    def count(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        nonlocal total
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)
        total += output[0].numel() * math.prod(weight.shape[1:])

    hooks = [
        layer.register_forward_hook(count)
        for layer in net.modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    with torch.inference_mode():
        net.eval()(torch.rand(1, *shape))
    for hook in hooks:
        hook.remove()
    return total


@pytest.mark.parametrize(
    ("width", "side", "features", "millions", "gmac"),
    [
        (20, 32, 160, 1.09, 0.055),
        (20, 64, 640, 1.09, 0.218),
        (64, 32, 512, 11.17, 0.555),
        (64, 64, 2048, 11.17, 2.22),
    ],
)
def test_resnet_sizes_of_the_literature(
    width: int, side: int, features: int, millions: float, gmac: float
) -> None:
    net = nets.build("resnet18", (3, side, side), width=width, generator=seeded())
    assert net.features == features
    assert parameters(net) / 1e6 == pytest.approx(millions, abs=0.005)
    assert multiplications(net, (3, side, side)) / 1e9 == pytest.approx(gmac, rel=0.01)


def test_resnet_has_no_biased_convolution_and_keeps_the_resolution_at_first() -> None:
    net = ResNet18((3, 32, 32))
    convolutions = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == 20  # 17 of 3x3 and 3 shortcuts
    assert all(layer.bias is None for layer in convolutions)
    sides = [tuple(m.shape[1:]) for m in net.eval().forward_maps(torch.rand(1, 3, 32, 32))]
    assert sides == [(20, 32, 32), (40, 16, 16), (80, 8, 8), (160, 4, 4)]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp", (1, 28, 28)),
        ("mlp", (1, 8, 8)),
        ("mlp", (3, 5, 7)),
        ("mlp", (13,)),
        ("identity", (13,)),
        ("identity", (2, 3, 4)),
        ("resnet18", (3, 32, 32)),
        ("resnet18", (3, 64, 64)),
        ("resnet18", (1, 28, 28)),
        ("resnet18", (3, 33, 64)),
        ("resnet18", (3, 40, 24)),
        ("resnet18", (1, 8, 8)),
        ("resnet18", (1, 1, 1)),
        ("resnet18-global", (3, 64, 64)),
    ],
)
def test_stages_have_the_announced_sizes(name: str, shape: tuple[int, ...]) -> None:
    net = nets.build(name, shape, generator=seeded()).eval()
    assert isinstance(net, nets.Net)
    x = torch.rand(3, *shape, generator=seeded(1))
    with torch.inference_mode():
        stages, out = net.forward_stages(x), net(x)
    assert torch.equal(stages[-1], out)
    assert out.shape == (3, net.features)
    assert tuple(stage.shape[1] for stage in stages) == net.stage_features


def test_small_maps_are_averaged_whole() -> None:
    below, at = (nets.build("resnet18", (3, s, s), generator=seeded()) for s in (24, 25))
    assert (below.windowed, at.windowed) == (False, True)
    assert below.features == at.features == 160


def test_global_pooling_averages_the_windows_of_the_other() -> None:
    shape = (3, 64, 64)
    windows = nets.build("resnet18", shape, generator=seeded()).eval()
    whole = nets.build("resnet18-global", shape, generator=seeded()).eval()
    x = torch.rand(2, *shape, generator=seeded(1))
    with torch.inference_mode():
        torch.testing.assert_close(whole(x), windows(x).unflatten(1, (160, 4)).mean(2))


def test_block_equals_its_formula() -> None:
    torch.manual_seed(0)
    net = ResNet18((3, 16, 16), width=4).eval()
    block = net.stages[1][0]
    x = torch.rand(2, 4, 16, 16)
    with torch.inference_mode():
        inner = block.norm2(block.conv2(block.norm1(block.conv1(x)).relu()))
        want = (inner + block.shortcut(x)).relu()
        torch.testing.assert_close(block(x), want)


def test_layout_of_the_input_does_not_change_the_bits() -> None:
    net = nets.build("resnet18", (3, 64, 64), generator=seeded()).eval()
    x = torch.rand(2, 3, 64, 64, generator=seeded(1))
    with torch.inference_mode():
        want = net(x)
        assert torch.equal(net(x.contiguous(memory_format=torch.channels_last)), want)


def test_channels_last_computes_what_the_usual_layout_does() -> None:
    net = ResNet18((3, 64, 64), width=8).eval()
    x = torch.rand(2, 3, 64, 64, generator=seeded(1))
    with torch.inference_mode():
        want = net(x)
        net.to(memory_format=torch.contiguous_format)
        maps = net.norm(net.conv(x)).relu()  # past forward_maps, which sets the layout
        for stage in net.stages:
            maps = stage(maps)
        assert maps.is_contiguous()
        windows = maps.reshape(2, 64, 2, 4, 2, 4).mean((3, 5)).reshape(2, -1)
    torch.testing.assert_close(want, windows, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "resnet18"])
def test_weights_depend_on_the_generator_only(name: str) -> None:
    shape = (3, 32, 32)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = nets.build(name, shape, width=8, generator=seeded()).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    again = nets.build(name, shape, width=8, generator=seeded()).state_dict()
    other = nets.build(name, shape, width=8, generator=seeded(1)).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_generator_moves_on_between_networks() -> None:
    generator = seeded()
    first, second = (nets.build("mlp", (4,), width=3, generator=generator) for _ in range(2))
    assert not torch.equal(first.hidden1.weight, second.hidden1.weight)


@pytest.mark.parametrize("width", [0, None])
def test_no_width_means_the_networks_own(width: int | None) -> None:
    assert nets.build("mlp", (4,), width=width, generator=seeded()).features == 400
    assert nets.build("resnet18", (3, 32, 32), width=width, generator=seeded()).features == 160
    assert parameters(nets.build("mlp", (1, 28, 28), width=width, generator=seeded())) == 474_400


def test_mlp_is_two_rectified_layers() -> None:
    net = nets.build("mlp", (2, 3), width=5, generator=seeded())
    x = torch.randn(4, 2, 3, generator=seeded(1))
    first = (x.reshape(4, 6) @ net.hidden1.weight.T + net.hidden1.bias).clamp_min(0)
    second = (first @ net.hidden2.weight.T + net.hidden2.bias).clamp_min(0)
    torch.testing.assert_close(net(x), second)


def test_identity_returns_the_flat_input() -> None:
    x = torch.rand(2, 3, 4)
    assert torch.equal(nets.build("identity", (3, 4), generator=seeded())(x), x.reshape(2, 12))


def test_errors_name_the_remedy() -> None:
    with pytest.raises(OcilError, match="Did you mean 'resnet18'"):
        nets.build("resnet-18", (3, 32, 32), generator=seeded())
    with pytest.raises(OcilError, match=r"\(7,\).*--net mlp"):
        nets.build("resnet18", (7,), generator=seeded())
    with pytest.raises(OcilError, match="width is -3"):
        nets.build("mlp", (7,), width=-3, generator=seeded())
    with pytest.raises(OcilError, match="'window' or 'global'"):
        ResNet18((3, 32, 32), pool="max")


def test_bfloat16_keeps_features_and_gradients_in_32_bits_and_near_those_of_float32():
    x = torch.rand(16, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    found = {}
    for precision in ("float32", "bfloat16"):
        generator = torch.Generator().manual_seed(0)
        net = nets.build("resnet18", (3, 32, 32), generator=generator, precision=precision)
        assert all(part.dtype == torch.float32 for part in net.parameters())
        stages = net.forward_stages(x)
        assert {part.dtype for part in stages} == {torch.float32}
        stages[-1].square().mean().backward()
        found[precision] = torch.cat(
            [stages[-1].detach().flatten(), net.conv.weight.grad.flatten()]
        )
    assert not torch.equal(found["float32"], found["bfloat16"])
    cosine = torch.cosine_similarity(found["float32"], found["bfloat16"], dim=0)
    assert cosine > 0.99


def test_bfloat16_is_refused_where_there_are_no_convolutions():
    with pytest.raises(OcilError, match="leave --precision at float32"):
        nets.build("mlp", (1, 8, 8), generator=torch.Generator(), precision="bfloat16")


@pytest.mark.parametrize("channels", [1, 2, 4, 6, 8, 20])
@pytest.mark.parametrize("side", [8, 9])
def test_a_shortcut_is_a_product_at_every_second_pixel(channels: int, side: int) -> None:
    """Several rounds: a kernel that writes past its buffers is found out at a later free."""
    shortcut = Shortcut(channels, 2 * channels, 1, 2, bias=False).to(
        memory_format=torch.channels_last
    )
    for seed in range(8):
        x = torch.randn(4, channels, side, side, generator=torch.Generator().manual_seed(seed))
        x = x.to(memory_format=torch.channels_last).requires_grad_()
        found = shortcut(x)
        want = torch.einsum("nihw,oi->nohw", x[:, :, ::2, ::2], shortcut.weight[:, :, 0, 0])
        torch.testing.assert_close(found, want)
        asked = [x, shortcut.weight]
        given, wanted = (torch.autograd.grad(y.square().sum(), asked) for y in (found, want))
        torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "init"), [("resnet18", "kaiming"), ("resnet18-global", "kaiming"), ("mlp", "xavier")]
)
def test_initial_weights_have_the_spread_asked_for(name: str, init: str) -> None:
    """Kaiming: N(0, 2 / fan out) for convolutions. Xavier: U(+-sqrt(6 / (in + out))), no bias."""
    shape = (3, 32, 32)
    plain, net = (
        nets.build(name, shape, width=40, generator=seeded(), init=i) for i in ("torch", init)
    )
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(layers) == {"resnet18": 20, "resnet18-global": 20, "mlp": 2}[name]
    for layer in layers:
        out, inside, *window = layer.weight.shape
        fan = out * math.prod(window)
        std = math.sqrt(2 / fan) if window else math.sqrt(2 / (out + inside))
        assert float(layer.weight.detach().std()) == pytest.approx(std, rel=0.15)
        assert layer.bias is None or not layer.bias.any()
    assert plain.state_dict().keys() == net.state_dict().keys()
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(bool((m.weight == 1).all()) and not m.bias.any() for m in norms)
    again = nets.build(name, shape, width=40, generator=seeded(), init=init)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "init"), [("mlp", "kaiming"), ("resnet18", "xavier"), ("identity", "xavier")]
)
def test_initial_weights_that_a_net_cannot_have_are_refused(name: str, init: str) -> None:
    with pytest.raises(OcilError, match=f"'{init}'.*{name}.*--init torch"):
        nets.build(name, (3, 32, 32), generator=seeded(), init=init)


@pytest.mark.parametrize("name", ["mlp", "resnet18", "resnet18-global", "identity"])
def test_a_net_standardizes_what_it_is_given(name: str) -> None:
    shape, mean, std = (3, 32, 32), (0.4, 0.5, 0.1), (0.2, 0.5, 0.25)
    x = torch.rand(4, *shape, generator=seeded(1))
    plain = nets.build(name, shape, width=4, generator=seeded()).eval()
    net = nets.build(name, shape, width=4, generator=seeded(), standard=(mean, std)).eval()
    ready = torch.stack([(x[:, c] - mean[c]) / std[c] for c in range(3)], 1)
    torch.testing.assert_close(net(x), plain(ready))
    assert plain.state_dict().keys() == net.state_dict().keys()  # they are facts of the data
    for own, of in zip(net.forward_stages(x), plain.forward_stages(ready), strict=True):  # type: ignore
        torch.testing.assert_close(own, of)
    if isinstance(net, ResNet18):
        for own, of in zip(net.forward_blocks(x), plain.forward_blocks(ready), strict=True):  # type: ignore
            torch.testing.assert_close(own, of)


@pytest.mark.parametrize("change", [{"init": "kaiming"}, {"standard": ((0.5,), (0.5,))}])
def test_a_module_of_ones_own_is_neither_drawn_anew_nor_standardized(change: dict) -> None:
    with pytest.raises(OcilError, match=r"module of your own.*--init at torch"):
        nets.build("module", (1, 4, 4), generator=seeded(), **change)
