"""The first guess of the shrinkage, its choice, and the precision of the choice."""

from __future__ import annotations

import pytest
import torch
from sklearn.covariance import oas as sklearn_oas

from ocil.moments import shrinkage


def test_the_first_guess_is_that_of_scikit_learn() -> None:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(40, 15, generator=draw) @ torch.randn(15, 15, generator=draw)
    x = x.double() - x.double().mean(0)
    _, rho = sklearn_oas(x.numpy(), assume_centered=True)
    d, n = 15, 40  # scikit-learn leaves out the terms in 2/d of the paper
    s = x.T @ x / n
    tr, sq = float(s.trace()), float(s.square().sum())
    theirs = (sq / d**2 + (tr / d) ** 2) / ((n + 1) * (sq / d**2 - tr**2 / d**3))
    assert rho == pytest.approx(min(1.0, theirs))
    paper = ((1 - 2 / d) * sq + tr**2) / ((n + 1 - 2 / d) * (sq - tr**2 / d))
    assert shrinkage.oas(s, n) == pytest.approx(min(1.0, paper))
    assert shrinkage.oas(torch.eye(3), 5) == 1.0


def test_where_nothing_errs_the_largest_shrinkage_wins() -> None:
    rhos, heats = len(shrinkage.GRID), len(shrinkage.TEMPERATURES)
    assert shrinkage.choose(torch.zeros(rhos, heats), 9) == (max(shrinkage.GRID), shrinkage.START)
    losses = torch.linspace(0.1, 1.0, rhos)[:, None].expand(-1, heats)
    assert shrinkage.choose(losses, 9)[0] == min(shrinkage.GRID)


def test_the_temperature_is_the_best_one_once_there_are_samples() -> None:
    losses = torch.full((len(shrinkage.GRID), len(shrinkage.TEMPERATURES)), 0.5)
    losses[:, 1] = 0.4
    assert shrinkage.choose(losses, 5)[1] == shrinkage.START
    assert shrinkage.choose(losses, 5000)[1] == shrinkage.TEMPERATURES[1]


def test_large_covariances_are_judged_as_exactly_as_small_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eigenvectors in float32, as for more than 1 024 features, give the same losses."""
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(400) % 4
    scales = torch.logspace(1.5, -1.5, 40).double()
    z = torch.randn(400, 40, generator=draw).double() * scales
    z += torch.randn(4, 40, generator=draw).double()[y] * scales / 2
    means = torch.stack([z[y == c].mean(0) for c in range(4)])
    s = (z - means[y]).T @ (z - means[y]) / 400
    counts = torch.bincount(y)
    exact = shrinkage.left_out_losses(s, means, counts, z, y)
    plain = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda m: plain(m.float()))
    found = shrinkage.left_out_losses(s, means, counts, z, y)
    torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-4)
    assert float(exact.max() / exact.min()) > 1.1  # else the test says nothing
