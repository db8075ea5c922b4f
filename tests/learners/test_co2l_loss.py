"""Relation distillation against sums over pairs written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from ocil import losses
from ocil.learners.co2l import relation_distillation


@pytest.fixture
def projections():
    draw = torch.Generator().manual_seed(0)
    u = F.normalize(torch.randn(7, 4, generator=draw, dtype=torch.float64), dim=1)
    past = F.normalize(torch.randn(7, 3, generator=draw, dtype=torch.float64), dim=1)
    return u, past


def relation(u: torch.Tensor, i: int, kappa: float) -> dict[int, float]:
    """How much of its similarity point i gives to each of the others."""
    e = {j: math.exp(float(u[i] @ u[j]) / kappa) for j in range(len(u)) if j != i}
    return {j: value / sum(e.values()) for j, value in e.items()}


@pytest.mark.parametrize(("kappa", "kappa_past"), [(0.2, 0.1), (1.0, 0.5)])
def test_it_is_the_cross_entropy_of_relations_pair_by_pair(projections, kappa, kappa_past):
    u, past = projections
    expected = 0.0
    for i in range(7):
        now, before = relation(u, i, kappa), relation(past, i, kappa_past)
        expected -= sum(before[j] * math.log(now[j]) for j in now) / 7
    found = relation_distillation(u, past, kappa, kappa_past)
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_only_the_present_gets_a_gradient(projections):
    u, past = (v.clone().requires_grad_() for v in projections)
    relation_distillation(u, past, 0.2, 0.1).backward()
    assert u.grad is not None and u.grad.abs().sum() > 0
    assert past.grad is None


def test_equal_relations_are_the_minimum_whatever_the_rotation(projections):
    past = projections[1]
    turn = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1)).double()).Q
    u = (past @ turn).requires_grad_()
    relation_distillation(u, past, 0.3, 0.3).backward()
    assert u.grad is not None
    assert u.grad.abs().max() < 1e-12


def test_sharp_temperatures_stay_finite():
    u = torch.eye(6).roll(1, 0)
    u[0] = u[1]  # one pair identical, all others orthogonal: exp(100) and 1
    u.requires_grad_()
    loss = relation_distillation(u, -torch.eye(6), 0.005, 0.001)
    loss.backward()
    assert loss.isfinite()
    assert u.grad is not None and u.grad.isfinite().all()


def test_a_single_point_has_no_relations():
    assert float(relation_distillation(torch.ones(1, 2), torch.ones(1, 2), 0.2, 0.1)) == 0


# The contrast of Co2L: replayed points are contrasts and never anchors.


def test_the_asymmetric_contrast_is_its_formula_sample_by_sample(projections):
    u, tau = projections[0], 0.4
    y = torch.tensor([0, 2, 0, 2, 1, 2, 0])
    anchors = torch.tensor([False, True, False, True, True, False, True])
    expected = 0.0
    for i in range(7):
        positives = [p for p in range(7) if p != i and y[p] == y[i]]
        if not anchors[i] or not positives:
            continue
        below = sum(math.exp(float(u[i] @ u[j]) / tau) for j in range(7) if j != i)
        terms = [math.log(math.exp(float(u[i] @ u[p]) / tau) / below) for p in positives]
        expected -= sum(terms) / len(terms) / 7  # all seven count, buffer anchors as zero
    found = losses.supervised_contrastive(u, y, tau, anchors=anchors)
    assert float(found) == pytest.approx(expected, rel=1e-10)
