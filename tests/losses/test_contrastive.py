"""The supervised contrastive loss against its formula, written out point by point."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from ocil import losses

TAU = 0.3


@pytest.fixture
def problem():
    """Eight unit features; class 2 occurs once."""
    draw = torch.Generator().manual_seed(0)
    z = F.normalize(torch.randn(8, 5, generator=draw, dtype=torch.float64), dim=1)
    return z, torch.tensor([0, 1, 0, 3, 1, 0, 2, 3])


def slow(z, y, anchors) -> float:
    total, n = 0.0, len(y)
    for i in range(n):
        positives = [p for p in range(n) if p != i and y[p] == y[i]]
        if not positives or not anchors[i]:
            continue
        below = sum(math.exp(float(z[i] @ z[j]) / TAU) for j in range(n) if j != i)
        logs = [math.log(math.exp(float(z[i] @ z[p]) / TAU) / below) for p in positives]
        total -= sum(logs) / len(logs)
    return total / n


def test_it_is_the_formula(problem):
    z, y = problem
    found = losses.supervised_contrastive(z, y, TAU)
    assert float(found) == pytest.approx(slow(z, y, [True] * 8), rel=1e-12)


def test_only_anchors_add_to_the_sum_and_the_rest_still_are_others(problem):
    z, y = problem
    anchors = torch.tensor([True, False, True, True, True, False, False, False])
    found = losses.supervised_contrastive(z, y, TAU, anchors=anchors)
    assert float(found) == pytest.approx(slow(z, y, anchors.tolist()), rel=1e-12)


@pytest.mark.parametrize("labels", [[0, 1, 2], [5], [4, 4]])
def test_points_without_fellows_give_neither_loss_nor_nan(labels):
    draw = torch.Generator().manual_seed(1)
    raw = torch.randn(len(labels), 4, generator=draw, requires_grad=True)
    loss = losses.supervised_contrastive(F.normalize(raw, dim=1), torch.tensor(labels), 0.07)
    loss.backward()
    assert raw.grad is not None
    assert raw.grad.isfinite().all()
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)  # two alone: nothing to tell apart


def test_a_step_along_the_gradient_draws_classes_together(problem):
    z, y = problem
    z.requires_grad_()
    (gradient,) = torch.autograd.grad(losses.supervised_contrastive(z, y, TAU), z)
    moved = F.normalize(z - 0.1 * gradient, dim=1).detach()
    same = (y[:, None] == y) & ~torch.eye(8, dtype=torch.bool)
    apart = y[:, None] != y
    assert (moved @ moved.T)[same].mean() > (z @ z.T)[same].mean()
    assert (moved @ moved.T)[apart].mean() < (z @ z.T)[apart].mean()


def test_contrast_of_a_rectangle_is_a_softmax_over_the_candidates():
    scores = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 5.0]], requires_grad=True)
    positive = torch.tensor([[True, False, True], [False, False, False]])
    candidates = torch.tensor([[True, False, True], [False, False, False]])
    found = losses.contrast(scores, positive, candidates)
    below = math.log(math.exp(1) + math.exp(3))
    assert found.tolist() == pytest.approx([below - 2.0, 0.0])
    found.sum().backward()
    assert scores.grad is not None
    assert scores.grad[0, 1] == 0
    assert scores.grad[1].tolist() == [0, 0, 0]
