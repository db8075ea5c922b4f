"""Cross-entropy among some classes, with weights, and the gradient it sends to each logit."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from ocil import losses
from ocil.learners import gsa


@pytest.fixture
def problem():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 5, generator=draw, dtype=torch.float64).mul_(2).requires_grad_()
    return logits, torch.tensor([1, 3, 3, 1, 4, 1, 3])


def test_the_softmax_is_over_the_classes_given(problem):
    logits, y = problem
    among = losses.present(y, 5)
    assert among.tolist() == [False, True, False, True, True]
    loss = losses.restricted_cross_entropy(logits, y, among)
    rows = logits.detach().tolist()
    expected = [
        math.log(sum(math.exp(row[c]) for c in (1, 3, 4))) - row[label]
        for row, label in zip(rows, y.tolist(), strict=True)
    ]
    assert float(loss.detach()) == pytest.approx(sum(expected) / 7, rel=1e-12)
    loss.backward()
    assert logits.grad is not None
    assert (logits.grad[:, [0, 2]] == 0).all()
    assert (logits.grad[:, [1, 3, 4]] != 0).all()


def test_a_class_alone_gets_no_gradient(problem):
    logits, _ = problem
    y = torch.full((7,), 2)
    losses.restricted_cross_entropy(logits, y, losses.present(y, 5)).backward()
    assert logits.grad is not None
    assert (logits.grad == 0).all()


def test_weights_multiply_and_the_count_divides(problem):
    logits, y = problem
    w = torch.tensor([9.0, 2.0, 9.0, 0.5, 1.0], dtype=torch.float64)
    each = F.cross_entropy(logits, y, reduction="none")
    expected = sum(float(w[c]) * float(v) for c, v in zip(y, each.detach(), strict=True)) / 7
    found = gsa.weighted_cross_entropy(logits, y, w)
    assert float(found.detach()) == pytest.approx(expected, rel=1e-12)


def test_gradient_masses_are_the_gradient_of_cross_entropy(problem):
    logits, y = problem
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), logits)
    positive, negative = gsa.gradient_masses(logits, y)
    for c in range(5):
        own = [float(gradient[i, c]) for i in range(7) if y[i] == c]
        others = [float(gradient[i, c]) for i in range(7) if y[i] != c]
        assert float(positive[c]) == pytest.approx(-sum(own), abs=1e-12)
        assert float(negative[c]) == pytest.approx(sum(others), abs=1e-12)
    assert not positive.requires_grad


def test_adaptive_weights_rise_with_the_ratio():
    positive, negative = torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([5.0, 1.0, 1.0, 0.0])
    expected = [2 / (1 + math.exp(1)), 1.0, 2 / (1 + math.exp(-1)), 2.0]
    assert gsa.adaptive_weights(positive, negative).tolist() == pytest.approx(expected)
