"""The covariance shared by all components, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ocil.mixture.whitening import PooledCovariance


def fed(ridge: float = 0.0, rate: float = 0.01, batches: int = 1) -> tuple[PooledCovariance, list]:
    generator = torch.Generator().manual_seed(0)
    pooled = PooledCovariance(5, rate, ridge, torch.device("cpu"))
    parts = [torch.randn(40, 5, generator=generator) * torch.arange(1, 6) for _ in range(batches)]
    for part in parts:
        pooled.update(part)
    return pooled, [part.numpy() for part in parts]


@pytest.mark.parametrize("ridge", [0.0, 0.3, 1.0])
def test_distances_against_an_inverse(ridge):
    pooled, (residuals,) = fed(ridge)
    covariance = residuals.T @ residuals / 40
    shrunk = (1 - ridge) * covariance + ridge * np.trace(covariance) / 5 * np.eye(5)
    z, mu = torch.randn(7, 5), torch.randn(3, 2, 5)
    gap = z.numpy()[:, None, None] - mu.numpy()
    wanted = np.einsum("ncki,ij,nckj->nck", gap, np.linalg.inv(shrunk), gap)
    np.testing.assert_allclose(pooled.distances(z, mu).numpy(), wanted, rtol=2e-4)


def test_the_first_batches_are_averaged_and_later_ones_followed():
    pooled, parts = fed(rate=0.25, batches=6)
    wanted = np.zeros((5, 5))
    for t, part in enumerate(parts):
        rate = max(0.25, 1 / (t + 1))
        wanted = (1 - rate) * wanted + rate * part.T @ part / 40
    np.testing.assert_allclose(pooled.covariance.numpy(), wanted, rtol=1e-5)


def test_residuals_in_a_subspace_and_none_at_all_are_no_trouble():
    pooled = PooledCovariance(4, 0.01, 0.1, torch.device("cpu"))
    pooled.update(torch.zeros(0, 4))
    z, mu = torch.eye(4), torch.zeros(1, 1, 4)
    assert pooled.distances(z, mu).isfinite().all()
    pooled.update(torch.tensor([[1.0, 0, 0, 0]]))
    distances = pooled.distances(z, mu)[:, 0, 0]
    assert distances[0] < distances[1]


def test_a_covariance_of_another_dimension_is_refused():
    pooled, _ = fed()
    other = PooledCovariance(4, 0.01, 0.1, torch.device("cpu"))
    with pytest.raises(ValueError, match="4 dimensions"):
        other.load_state_dict(pooled.state_dict())
