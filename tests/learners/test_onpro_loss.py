"""Prototype equilibrium against its formula, class by class."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ocil.learners.onpro import batch_prototypes, mixed_cross_entropy, prototype_equilibrium

Y = [4, 1, 4, 0, 1, 4]


def unit(n: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n, 5, generator=draw, dtype=torch.float64), dim=1)


def slow(views: tuple[torch.Tensor, ...], y: list[int], tau: float) -> torch.Tensor:
    means = {}
    for v, z in enumerate(views):
        for c in set(y):
            mean = sum(z[i] for i in range(len(y)) if y[i] == c) / y.count(c)
            means[v, c] = mean / mean.norm()
    total = torch.zeros((), dtype=torch.float64)
    for (v, c), a in means.items():
        below = sum(torch.exp(a @ b / tau) for key, b in means.items() if key != (v, c))
        total = total - torch.log(torch.exp(a @ means[1 - v, c] / tau) / below)
    return total / len(means)


@pytest.mark.parametrize("tau", [0.5, 0.1])
def test_the_formula_and_its_gradient(tau: float) -> None:
    first, second = unit(6, 0).requires_grad_(), unit(6, 1).requires_grad_()
    found = prototype_equilibrium(first, second, torch.tensor(Y), tau)
    wanted = slow((first, second), Y, tau)
    torch.testing.assert_close(found, wanted)
    ours = torch.autograd.grad(found, (first, second), retain_graph=True)
    torch.testing.assert_close(ours, torch.autograd.grad(wanted, (first, second)))
    assert all((part.abs().sum(1) > 0).all() for part in ours)  # every point is reached


def test_one_class_has_nothing_to_keep_apart_from() -> None:
    first = unit(3, 0).requires_grad_()
    loss = prototype_equilibrium(first, unit(3, 1), torch.tensor([2, 2, 2]), 0.5)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-12)
    (gradient,) = torch.autograd.grad(loss, first)
    assert float(gradient.abs().max()) < 1e-12


def test_prototypes_are_class_means() -> None:
    z = unit(6, 0)
    found = batch_prototypes(z, torch.tensor(Y))
    for i in range(6):
        mean = torch.stack([z[j] for j in range(6) if Y[j] == Y[i]]).mean(0)
        torch.testing.assert_close(found[i], mean)


def test_mixed_cross_entropy_point_by_point() -> None:
    logits = 3 * unit(4, 0)
    a, b, share = [0, 1, 2, 3], [3, 1, 0, 4], [0.0, 0.3, 0.5, 0.9]
    p = logits.softmax(1).log()
    wanted = -sum((1 - t) * p[i, a[i]] + t * p[i, b[i]] for i, t in enumerate(share)) / 4
    found = mixed_cross_entropy(
        logits, torch.tensor(a), torch.tensor(b), torch.tensor(share, dtype=torch.float64)
    )
    torch.testing.assert_close(found, wanted)
