"""Distances and densities against scikit-learn; the shared covariance against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from ocil.mixture import distances
from ocil.mixture.distances import PooledCovariance
from ocil.mixture.moments import component_log_density, window_points


def random_mixture(dtype: torch.dtype, c: int = 3, k: int = 4, d: int = 6):
    g = torch.Generator().manual_seed(0)
    mu = 2 * torch.randn(c, k, d, generator=g, dtype=torch.float64) + 5
    var = torch.rand(c, k, d, generator=g, dtype=torch.float64) + 0.2
    log_pi = torch.randn(c, k, generator=g, dtype=torch.float64).log_softmax(-1)
    z = 2 * torch.randn(9, d, generator=g, dtype=torch.float64) + 5
    return tuple(t.to(dtype) for t in (mu, var, log_pi, z))


def test_densities_agree_with_scikit_learn_in_both_precisions() -> None:
    for dtype, tolerance in ((torch.float32, 2e-4), (torch.float64, 1e-10)):
        mu, var, log_pi, z = random_mixture(dtype)
        mine = distances.log_density(z, mu, var, log_pi)
        for c in range(3):
            model = GaussianMixture(4, covariance_type="diag")
            model.means_, model.weights_ = mu[c].double().numpy(), log_pi[c].double().exp().numpy()
            model.covariances_ = var[c].double().numpy()
            model.precisions_cholesky_ = 1 / np.sqrt(model.covariances_)
            expected = torch.from_numpy(model.score_samples(z.double().numpy()))
            assert torch.allclose(mine[:, c].double(), expected, rtol=tolerance)
        plain = ((z[:, None, None] - mu).square() / var).sum(-1)
        assert torch.allclose(distances.mahalanobis(z, mu, var, log_pi), plain, rtol=1e-3)
        y = torch.arange(9) % 3
        own = distances.own_distances(z, mu[y], var[y], log_pi[y])
        assert torch.allclose(own, plain[torch.arange(9), y], rtol=1e-3)
        points = window_points(z.expand(3, -1, -1), torch.ones(3, 9, dtype=torch.bool), mu[:, :1])
        joint = component_log_density(points, mu, var) + log_pi.unsqueeze(-1)
        assert torch.allclose(joint.logsumexp(1).T, mine, rtol=2e-4)


def test_far_from_the_origin_float32_keeps_its_digits() -> None:
    mu, var, log_pi, z = random_mixture(torch.float64)
    exact = distances.mahalanobis(z, mu, var, log_pi)
    moved = distances.mahalanobis(
        (z + 300).float(), (mu + 300).float(), var.float(), log_pi.float()
    )
    assert torch.allclose(moved.double(), exact, rtol=2e-3, atol=2e-2)


def test_unused_components_are_infinitely_far() -> None:
    mu, var, log_pi, z = random_mixture(torch.float64)
    log_pi[0, 1] = -torch.inf
    assert bool(distances.mahalanobis(z, mu, var, log_pi)[:, 0, 1].isinf().all())
    assert bool(distances.log_density(z, mu, var, log_pi).isfinite().all())


def test_merged_gaussian_has_the_moments_of_samples() -> None:
    mu, var, log_pi, _ = random_mixture(torch.float64)
    mean, spread = distances.merged_gaussian(mu, var, log_pi.exp())
    pi = log_pi.exp().unsqueeze(-1)
    assert torch.allclose(mean, (pi * mu).sum(1))
    assert torch.allclose(spread, (pi * (var + mu.square())).sum(1) - mean.square())


def test_pooling_and_shrinkage() -> None:
    _, var, log_pi, _ = random_mixture(torch.float64)
    log_pi[2] = -torch.inf  # a class never seen has no say
    pooled = distances.pool_variance(var, log_pi)
    expected = (log_pi[:2].exp().unsqueeze(-1) * var[:2]).sum((0, 1)) / 2
    assert torch.allclose(pooled, expected)
    assert torch.allclose(distances.shrink(var, log_pi, 1.0), pooled.expand_as(var))
    assert distances.shrink(var, log_pi, 0.0) is var


def fed(batches: int = 1) -> tuple[PooledCovariance, list]:
    generator = torch.Generator().manual_seed(0)
    pooled = PooledCovariance(5, torch.device("cpu"))
    parts = [torch.randn(40, 5, generator=generator) * torch.arange(1, 6) for _ in range(batches)]
    for part in parts:
        pooled.update(part)
    return pooled, [part.numpy() for part in parts]


@pytest.mark.parametrize("ridge", [0.0, 0.3, 1.0])
def test_distances_against_an_inverse(ridge, monkeypatch):
    monkeypatch.setattr(distances, "RIDGE", ridge)
    pooled, (residuals,) = fed()
    covariance = residuals.T @ residuals / 40
    shrunk = (1 - ridge) * covariance + ridge * np.trace(covariance) / 5 * np.eye(5)
    z, mu = torch.randn(7, 5), torch.randn(3, 2, 5)
    gap = z.numpy()[:, None, None] - mu.numpy()
    wanted = np.einsum("ncki,ij,nckj->nck", gap, np.linalg.inv(shrunk), gap)
    np.testing.assert_allclose(pooled.distances(z, mu).numpy(), wanted, rtol=2e-4)


def test_the_first_batches_are_averaged_and_later_ones_followed(monkeypatch):
    monkeypatch.setattr(distances, "FOLLOW", 0.25)
    pooled, parts = fed(batches=6)
    wanted = np.zeros((5, 5))
    for t, part in enumerate(parts):
        rate = max(0.25, 1 / (t + 1))
        wanted = (1 - rate) * wanted + rate * part.T @ part / 40
    np.testing.assert_allclose(pooled.covariance.numpy(), wanted, rtol=1e-5)


def test_residuals_in_a_subspace_and_none_at_all_are_no_trouble():
    pooled = PooledCovariance(4, torch.device("cpu"))
    pooled.update(torch.zeros(0, 4))
    z, mu = torch.eye(4), torch.zeros(1, 1, 4)
    assert pooled.distances(z, mu).isfinite().all()
    pooled.update(torch.tensor([[1.0, 0, 0, 0]]))
    found = pooled.distances(z, mu)[:, 0, 0]
    assert found[0] < found[1]


def test_a_covariance_of_another_dimension_is_refused():
    pooled, _ = fed()
    other = PooledCovariance(4, torch.device("cpu"))
    with pytest.raises(ValueError, match="4 dimensions"):
        other.load_state_dict(pooled.state_dict(), 1)
