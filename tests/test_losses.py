"""The losses against slow, per-sample references written from their formulas."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from ocil import losses

DRAW = torch.Generator()
TAU = 0.3


@pytest.fixture
def problem():
    """Twelve unit features of classes 0, 2 and 3; four classes of which 1 has no centroid."""
    draw = torch.Generator().manual_seed(0)
    z = F.normalize(torch.randn(12, 5, generator=draw, dtype=torch.float64), dim=1)
    y = torch.tensor([0, 2, 3, 0, 0, 2, 3, 3, 2, 0, 2, 2])
    mu = F.normalize(torch.randn(4, 3, 5, generator=draw, dtype=torch.float64), dim=2)
    active = torch.tensor([[1, 1, 1], [0, 0, 0], [1, 1, 0], [1, 0, 0]], dtype=torch.bool)
    return z, y, mu, active


def e(u: torch.Tensor, v: torch.Tensor) -> float:
    return math.exp(float(u @ v) / TAU)


def g_cen(x, c, mu, active):
    return sum(e(x, mu[c, k]) for k in range(mu.shape[1]) if active[c, k])


@pytest.mark.parametrize("form", ["printed-first", "printed-mean", "printed-sum"])
def test_dynamic_preservation_without_the_own_class(problem, form):
    z, y, mu, active = problem
    by_class: dict[int, list[float]] = {}
    for i, c in enumerate(y.tolist()):
        below = sum(g_cen(z[i], other, mu, active) for other in range(4))
        for other in set(y.tolist()) - {c}:
            terms = [e(z[i], z[j]) for j in range(len(y)) if y[j] == other]
            mean = sum(terms) / len(terms)
            value = {"printed-first": terms[0], "printed-mean": mean, "printed-sum": sum(terms)}
            below += value[form]
        by_class.setdefault(c, []).append(-math.log(g_cen(z[i], c, mu, active) / below))
    expected = sum(sum(v) / len(v) for v in by_class.values()) / len(by_class)
    found = losses.preservation_loss(z, y, mu, active, TAU, form, DRAW)
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_balanced_preservation_is_its_formula(problem):
    z, y, mu, active = problem
    by_class: dict[int, list[float]] = {}
    for i, c in enumerate(y.tolist()):
        below = 0.0
        for other in range(4):
            points = [j for j in range(len(y)) if y[j] == other and j != i]
            members = int(active[other].sum()) + len(points)
            if members:
                total = g_cen(z[i], other, mu, active) + sum(e(z[i], z[j]) for j in points)
                below += total / members
        positives = [j for j in range(len(y)) if y[j] == c and j != i]
        total = math.log(g_cen(z[i], c, mu, active) / int(active[c].sum()) / below)
        total += sum(math.log(e(z[i], z[j]) / below) for j in positives)
        by_class.setdefault(c, []).append(-total / (1 + len(positives)))
    expected = sum(sum(v) / len(v) for v in by_class.values()) / len(by_class)
    found = losses.preservation_loss(z, y, mu, active, TAU, "balanced", DRAW)
    assert float(found) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("form", ["printed-mean", "balanced"])
def test_gradients_reach_the_features_and_not_the_centroids(problem, form):
    z, y, mu, active = problem
    z.requires_grad_()
    mu.requires_grad_()
    losses.preservation_loss(z, y, mu, active, TAU, form, DRAW).backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert z.grad.abs().sum() > 0
    assert mu.grad is None


@pytest.mark.parametrize("form", ["printed-mean", "balanced"])
def test_a_class_without_centroids_takes_no_part(problem, form):
    z, _, mu, active = problem
    z.requires_grad_()
    newcomers = torch.ones(len(z), dtype=torch.int64)  # class 1 has none
    loss = losses.preservation_loss(z, newcomers, mu, active, TAU, form, DRAW)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert z.grad is not None
    assert z.grad.abs().sum() == 0


def test_preservation_of_a_single_class_is_not_divided_by_more(problem):
    z, y, mu, active = problem
    z, y = z[:1], y[:1]  # one point of class 0
    sums = {c: g_cen(z[0], c, mu, active) for c in (0, 2, 3)}
    means = {c: total / int(active[c].sum()) for c, total in sums.items()}
    for form, parts in (("printed", sums), ("printed-first", sums), ("balanced", means)):
        expected = -math.log(parts[0] / sum(parts.values()))
        found = losses.preservation_loss(z, y, mu, active, TAU, form, DRAW)
        assert float(found) == pytest.approx(expected, rel=1e-10)


def test_distillation_is_the_scaled_divergence():
    student, teacher = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    p, q = torch.softmax(student / 4, 1)[0], torch.softmax(teacher / 4, 1)[0]
    expected = 16 * sum(float(b) * math.log(float(b) / float(a)) for a, b in zip(p, q, strict=True))
    assert float(losses.distillation(student, teacher, 4.0)) == pytest.approx(expected, rel=1e-5)
    assert float(losses.distillation(student, student, 4.0)) == pytest.approx(0.0, abs=1e-6)
