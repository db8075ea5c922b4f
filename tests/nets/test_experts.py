"""Early exits: shapes, the trunk's own features untouched, weights from the generator alone."""

from __future__ import annotations

import pytest
import torch

from ocil import nets
from ocil.nets.experts import Exits


def made(name: str, shape: tuple[int, ...], width: int) -> tuple[torch.nn.Module, Exits]:
    draw = torch.Generator().manual_seed(5)
    net = nets.build(name, shape, width=width, generator=draw)
    return net, Exits(net, draw)


@pytest.mark.parametrize(
    ("name", "shape", "stages", "features"),
    [
        ("mlp", (1, 8, 8), 2, 2),
        ("identity", (7,), 1, 7),
        ("resnet18", (3, 32, 32), 4, 16),
        ("resnet18", (1, 9, 9), 4, 16),
        ("resnet18", (3, 64, 64), 4, 64),
        ("resnet18-global", (3, 64, 64), 4, 16),
    ],
)
def test_every_stage_ends_in_features_of_the_last_width(
    name: str, shape: tuple[int, ...], stages: int, features: int
) -> None:
    net, exits = made(name, shape, width=2)
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    net.eval()
    exits.eval()
    found = exits(net, x)
    assert [tuple(h.shape) for h in found] == [(3, features)] * stages
    assert exits.count == stages
    assert torch.equal(found[-1], net(x))


def test_a_shallow_exit_does_not_reach_deeper_stages() -> None:
    net, exits = made("resnet18", (3, 16, 16), width=2)
    exits(net, torch.rand(4, 3, 16, 16))[1].square().sum().backward()
    trained = [name.split(".") for name, p in net.named_parameters() if p.grad is not None]
    assert {name[1] for name in trained if name[0] == "stages"} == {"0", "1"}
    used = {name.split(".")[1] for name, p in exits.named_parameters() if p.grad is not None}
    assert used == {"1"}


def test_weights_come_from_the_generator_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    _, first = made("resnet18", (3, 16, 16), width=2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    _, second = made("resnet18", (3, 16, 16), width=2)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_gate_only_weakens() -> None:
    _, exits = made("resnet18", (3, 16, 16), width=2)
    gate = exits.exits[0][0]  # type: ignore
    h = torch.rand(4, 2, 7, 7, generator=torch.Generator().manual_seed(2))
    out = gate(h)
    assert out.shape == h.shape
    # sigmoid of what a ReLU leaves is at least 1/2 and below 1
    assert (out >= h / 2 - 1e-6).all() and (out < h).all()
