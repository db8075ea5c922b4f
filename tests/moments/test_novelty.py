"""Novelty against its definition by numpy, and leave-one-out against leaving out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ocil.moments import ClassMoments
from ocil.moments.novelty import left_out, novelty

DRAW = np.random.default_rng(0)
Y = torch.arange(400) % 4
Z = torch.tensor(DRAW.normal(size=(400, 5)) + 2 * np.eye(4, 5)[Y]).float()


def counted(z: torch.Tensor, y: torch.Tensor, n0: float = 20.0) -> ClassMoments:
    moments = ClassMoments(5, keeps=False)
    moments.add(z, y)
    moments.choice[0] = n0
    if moments.pending:
        moments.enter()
    return moments


def shrunk(s: np.ndarray, n: int) -> np.ndarray:
    rho = 20 / (20 + n)
    return (1 - rho) * s + rho * np.trace(s) / 5 * np.eye(5)


def by_definition(x: np.ndarray, z: np.ndarray, y: np.ndarray) -> float:
    means = np.stack([z[y == c].mean(0) for c in np.unique(y)])
    inside = z - means[np.searchsorted(np.unique(y), y)]
    sigma = shrunk(inside.T @ inside / len(z), len(z))
    near = min(float((x - m) @ np.linalg.solve(sigma, x - m)) for m in means)
    if len(means) == 1:
        return near
    out = x - z.mean(0)
    far = float(out @ np.linalg.solve(shrunk(np.cov(z.T, bias=True), len(z)), out))
    return near - far + max(0.0, near - 10)


@pytest.mark.parametrize("classes", [1, 4])
def test_it_is_what_its_definition_says(classes: int) -> None:
    y = Y % classes
    x = torch.tensor(DRAW.normal(size=(6, 5)) * 4).float()
    found = novelty(counted(Z, y), x).numpy()
    wanted = [by_definition(row, Z.double().numpy(), y.numpy()) for row in x.double().numpy()]
    assert np.allclose(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("classes", [1, 4])
def test_leaving_out_is_as_if_the_sample_had_never_come(classes: int) -> None:
    y, z = Y % classes, Z.double().numpy()
    found = left_out(counted(Z, y), Z[:20], y[:20]).numpy()
    others = [np.arange(400) != i for i in range(20)]
    wanted = [by_definition(z[i], z[o], y.numpy()[o]) for i, o in enumerate(others)]
    inside = [by_definition(z[i], z, y.numpy()) for i in range(20)]
    assert np.allclose(found, wanted, rtol=5e-3, atol=5e-3)
    assert np.abs(found - wanted).max() < np.abs(np.array(inside) - wanted).max() / 5


def test_a_sample_alone_in_its_class_is_passed_over() -> None:
    y = Y.clone()
    y[0] = 4
    assert len(left_out(counted(Z, y), Z[:3], y[:3])) == 2
