"""The projection head: its shape, its length and where its weights come from."""

from __future__ import annotations

import torch

from ocil.nets.projection import Projection


def test_two_layers_or_one_then_unit_length():
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    for hidden in (4, 0):
        project = Projection(6, hidden, 3, torch.Generator().manual_seed(0))
        weights = [p for name, p in project.named_parameters() if name.endswith("weight")]
        biases = [p for name, p in project.named_parameters() if name.endswith("bias")]
        h = x
        for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            h = (h.relu() if i else h) @ weight.T + bias
        assert len(weights) == (2 if hidden else 1)
        torch.testing.assert_close(project(x), h / h.norm(dim=1, keepdim=True))


def test_the_weights_come_from_the_generator_alone():
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = Projection(6, 4, 3, torch.Generator().manual_seed(7))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    again = Projection(6, 4, 3, torch.Generator().manual_seed(7))
    other = Projection(6, 4, 3, torch.Generator().manual_seed(8))
    a, b, c = (torch.cat([p.flatten() for p in m.parameters()]) for m in (first, again, other))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
