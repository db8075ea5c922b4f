"""Weighted moments of mixtures, by their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ocil.mixture import moments
from ocil.mixture.moments import (
    Moments,
    merge,
    regularise,
    smallest_variance,
    variance_within,
    weighted_moments,
    window_points,
)


def test_merging_moments_equals_the_union() -> None:
    g = torch.Generator().manual_seed(1)
    z = torch.randn(2, 10, 3, generator=g, dtype=torch.float64) + 4
    resp = torch.rand(2, 4, 10, generator=g, dtype=torch.float64)
    shift = torch.full((2, 1, 3), 4.0, dtype=torch.float64)
    parts = []
    for part in (slice(0, 4), slice(4, 10)):
        mask = torch.ones(z[:, part].shape[:2], dtype=torch.bool)
        parts.append(weighted_moments(resp[..., part], window_points(z[:, part], mask, shift)))
    whole = merge(*parts)
    mass = resp.sum(-1)
    mean = torch.einsum("bkn,bnd->bkd", resp, z) / mass.unsqueeze(-1)
    gap = (z.unsqueeze(1) - mean.unsqueeze(2)).square()
    var = torch.einsum("bkn,bknd->bkd", resp, gap) / mass.unsqueeze(-1)
    for mine, expected in zip(whole, (mass, mean, var), strict=True):
        assert torch.allclose(mine, expected)


def test_prior_and_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    var = torch.tensor([[[4.0, 0.0], [1.0, 1.0]]])
    found = Moments(torch.tensor([[0.0, 10.0]]), torch.zeros(1, 2, 2), var)
    out, pooled, _ = regularise(found, torch.ones(2), 0.01)
    assert torch.allclose(pooled, torch.ones(1, 1, 2)) and torch.allclose(out, torch.ones(1, 2, 2))
    found = found._replace(mass=torch.tensor([[10.0, 0.0]]))
    monkeypatch.setattr(moments, "PRIOR", 0.0)
    out, pooled, floor = regularise(found, torch.zeros(2), 0.01)
    assert floor.tolist() == [[[np.float32(0.01 * 2.0)]]]
    assert out[0, 0].tolist() == [4.0, np.float32(0.01 * 2.0)]  # floor: a share of the mean, 2


def test_variance_within_against_each_row_alone() -> None:
    z = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3, [True] + [False] * 4])
    rows = [z[0], z[1, :2]]
    wanted = sum((r - r.mean(0)).square().sum(0) for r in rows) / (4 + 1)
    found = variance_within(z, mask)
    assert found is not None
    assert found.tolist() == pytest.approx(wanted.tolist())
    assert variance_within(z, mask & mask.cumsum(1).eq(1)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_smallest_variance_has_a_finite_reciprocal(dtype: torch.dtype) -> None:
    least = torch.tensor(smallest_variance(dtype), dtype=dtype)
    assert least > 0 and (least.reciprocal() * 1e6).isfinite()
