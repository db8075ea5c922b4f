"""The held triangle against whole matrices."""

from __future__ import annotations

import pytest
import torch

from ocil.moments.triangle import SIDE, Triangle


@pytest.mark.parametrize("dim", [1, 5, SIDE, SIDE + 1, 3 * SIDE - 7])
def test_sums_of_outer_products(dim: int) -> None:
    draw = torch.Generator().manual_seed(dim)
    x, more = torch.randn(20, dim, generator=draw), torch.randn(dim, dim, generator=draw).double()
    g = Triangle(dim)
    for part in x.split(7):
        g.add(part)
    wanted = x.double().T @ x.double()
    torch.testing.assert_close(g.whole(), wanted, rtol=1e-5, atol=1e-4)
    assert torch.equal(g.whole(), g.whole().T) or dim > 1
    assert g.trace() == pytest.approx(float(wanted.trace()), rel=1e-5)
    other = g.copy()
    other.add_whole(more + more.T)
    torch.testing.assert_close(other.whole(), wanted + more + more.T, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(g.whole(), wanted, rtol=1e-5, atol=1e-4)


def test_it_takes_little_more_than_half() -> None:
    whole = 4 * 2400**2
    held = Triangle(2400).packed
    assert held.numel() * held.element_size() < 0.53 * whole
