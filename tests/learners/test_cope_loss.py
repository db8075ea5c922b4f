"""The loss of CoPE against its formula, written out point by point and pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from ocil.learners import cope

TAU = 0.2


@pytest.fixture
def problem():
    """Nine points of classes 0, 2 and 3, class 3 with one point; five prototypes."""
    draw = torch.Generator().manual_seed(0)
    z = F.normalize(torch.randn(9, 4, generator=draw, dtype=torch.float64), dim=1)
    y = torch.tensor([0, 2, 0, 2, 3, 2, 0, 0, 2])
    prototypes = 0.8 * F.normalize(torch.rand(5, 4, generator=draw, dtype=torch.float64), dim=1)
    return z, y, prototypes


def slow(z, y, prototypes, repel) -> torch.Tensor:
    """The formula with probabilities, its constants detached."""
    n, classes = len(y), len(prototypes)

    def e(q, x):
        return torch.exp(q @ x / TAU)

    def p(q, c, x):
        return e(q, x) / (e(q, x) + sum(e(prototypes[k], x) for k in range(classes) if k != c))

    total = torch.zeros((), dtype=z.dtype)
    for c in set(y.tolist()):
        own = [i for i in range(n) if y[i] == c]
        for i in own:
            terms = [p(prototypes[c], c, z[i])]
            terms += [p(z[j].detach(), c, z[i]) for j in own if j != i]
            total = total - torch.log(sum(terms) / len(own))  # type: ignore
        for j in own:
            for i in set(range(n)) - set(own):
                both = p(z[j], c, z[i]) + p(prototypes[c], c, z[i])
                total = total - repel * torch.log(1 - both / 2)
    return total / n


@pytest.mark.parametrize("repel", [1.0, 0.27, 0.0])
def test_value_and_gradient_are_those_of_the_formula(problem, repel):
    z, y, prototypes = problem
    z.requires_grad_()
    prototypes.requires_grad_()
    found = cope.pseudo_prototypical_proxy(z, y, prototypes, TAU, repel)
    expected = slow(z, y, prototypes.detach(), repel)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-10)
    (wanted,) = torch.autograd.grad(expected, z)
    found.backward()
    torch.testing.assert_close(z.grad, wanted)
    assert prototypes.grad is None


def test_one_class_in_the_batch_repels_nothing(problem):
    z, _, prototypes = problem
    y = torch.zeros(9, dtype=torch.int64)
    strong = cope.pseudo_prototypical_proxy(z, y, prototypes, TAU, 100.0)
    assert float(strong) == float(cope.pseudo_prototypical_proxy(z, y, prototypes, TAU, 0.0))


def test_a_cold_loss_stays_finite():
    # a point of class 1 exactly on one of class 0 and on its prototype, at a low temperature
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    prototypes = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    loss = cope.pseudo_prototypical_proxy(z, torch.tensor([0, 1, 1]), prototypes, 0.01)
    loss.backward()
    assert loss.isfinite()
    assert z.grad is not None
    assert z.grad.isfinite().all()


def test_others_logsumexp_is_the_sum_without_each():
    draw = torch.Generator().manual_seed(2)
    scores = torch.randn(6, 7, generator=draw).mul_(30).requires_grad_()
    found = cope.others_logsumexp(scores)
    for c in range(7):
        rest = [k for k in range(7) if k != c]
        torch.testing.assert_close(found[:, c], scores[:, rest].logsumexp(1))
    found.sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert float(scores.grad.sum()) == pytest.approx(6 * 7, rel=1e-4)


def test_others_logsumexp_of_equal_scores():
    found = cope.others_logsumexp(torch.zeros(1, 3))
    assert found[0].tolist() == pytest.approx([math.log(2)] * 3)
