"""InfoNCE over turned views against sums written out point by point."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from ocil.learners.holistic import holistic_scores, infonce, paired_infonce

TURNS, EPS = 3, 1e-8


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(shape, generator=draw, dtype=torch.float64), dim=-1)


def slow(
    s: torch.Tensor, labels: list[tuple[int, int]], pairs: list[int] | None = None
) -> torch.Tensor:
    """L_uni, or L_n where pair(i) is given; a label is a turn and a class."""
    total = torch.zeros((), dtype=s.dtype)
    size = len(labels)
    for i in range(size):
        e = [torch.exp(s[i, k] - s[i].detach().max()) for k in range(size)]
        if pairs is not None:
            e[i] = e[i] * 0
        term = [-torch.log(e[k] / (sum(e) + EPS) + EPS) for k in range(size)]
        own = [term[j] for j in range(size) if labels[j] == labels[i]]
        mean = sum(own) / len(own)
        total = total + (mean if pairs is None else term[pairs[i]] + 2 * mean)
    return total / size


def test_scores_are_the_two_similarities() -> None:
    z, f = unit(5, 3), unit(5, 7, seed=1)
    found = holistic_scores(z, f, 2, 1.5)
    for i in range(5):
        for j in range(5):
            wanted = 1.5 * (z[i] @ z[j] + z[i] @ f[j, 2:5])
            assert float(found[i, j]) == pytest.approx(float(wanted))
    assert not torch.allclose(found, found.T)


@pytest.mark.parametrize("tau", [0.07, 0.5])
def test_the_memorys_loss_and_gradient(tau: float) -> None:
    y = [0, 1, 0, 2]
    z = unit(TURNS * 4, 6).requires_grad_()
    s = holistic_scores(z, unit(TURNS * 4, 9, seed=1), 1, 1 / tau)
    labels = [(turn, label) for turn in range(TURNS) for label in y]
    found, wanted = infonce(s, torch.tensor(y)), slow(s, labels)
    torch.testing.assert_close(found, wanted)
    ours = torch.autograd.grad(found, z, retain_graph=True)
    torch.testing.assert_close(ours, torch.autograd.grad(wanted, z))


@pytest.mark.parametrize("tau", [0.07, 0.5])
def test_the_streams_loss_and_gradient(tau: float) -> None:
    y = [0, 1, 0]
    z = unit(TURNS * 6, 6).requires_grad_()
    s = holistic_scores(z, unit(TURNS * 6, 9, seed=1), 1, 1 / tau)
    labels = [(turn, label) for turn in range(TURNS) for _ in range(2) for label in y]
    pairs = [6 * turn + (i + 3) % 6 for turn in range(TURNS) for i in range(6)]
    found, wanted = paired_infonce(s, torch.tensor(y)), slow(s, labels, pairs)
    torch.testing.assert_close(found, wanted)
    ours = torch.autograd.grad(found, z, retain_graph=True)
    torch.testing.assert_close(ours, torch.autograd.grad(wanted, z))


def test_another_turn_of_the_same_image_is_a_negative() -> None:
    y = torch.tensor([0])
    alike = torch.zeros(2, 2)  # two turns of one image that look the same
    apart = torch.tensor([[0.0, -9.0], [-9.0, 0.0]])
    assert float(infonce(alike, y)) == pytest.approx(math.log(2))
    assert float(infonce(apart, y)) < 1e-3


def test_a_hopeless_positive_is_capped_and_not_pulled() -> None:
    s = torch.tensor([[0.0, -60.0], [-60.0, 0.0]], requires_grad=True)
    loss = infonce(s, torch.tensor([0, 0]))
    assert float(loss.detach()) == pytest.approx(-math.log(EPS) / 2, rel=1e-4)
    (gradient,) = torch.autograd.grad(loss, s)
    assert gradient.isfinite().all()
    assert float(gradient.abs().max()) < 1e-6


def test_extreme_scores_stay_finite() -> None:
    s = (1e4 * torch.randn(8, 8, generator=torch.Generator().manual_seed(0))).requires_grad_()
    for loss in (infonce(s, torch.tensor([0, 1])), paired_infonce(s, torch.tensor([0, 1]))):
        (gradient,) = torch.autograd.grad(loss, s)
        assert loss.isfinite() and gradient.isfinite().all()
