"""Bias correction against plain loops and torch's own optimiser."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ocil.learners.bic import bias_corrected, fit_bias
from ocil.learners.bic_ac import most_confident


def drawn(classifiers: int = 3, n: int = 40, classes: int = 5, scale: float = 2.0) -> tuple:
    """Logits (L, n, C) that know the answer a little, labels (n,) and pairs (2, L, C)."""
    draw = torch.Generator().manual_seed(4)
    y = torch.arange(n) % classes
    logits = scale * torch.randn(classifiers, n, classes, generator=draw, dtype=torch.float64)
    logits += F.one_hot(y, classes)
    bias = torch.rand(2, classifiers, classes, generator=draw, dtype=torch.float64) + 0.5
    return logits, y, bias


def loss_of(logits: torch.Tensor, y: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    z = bias_corrected(logits, bias)
    return torch.stack([F.cross_entropy(one, y) for one in z])


def test_each_classifier_and_class_has_its_pair() -> None:
    logits, _, bias = drawn()
    z = bias_corrected(logits, bias)
    for i in range(3):
        for c in range(5):
            torch.testing.assert_close(z[i, :, c], bias[0, i, c] * logits[i, :, c] + bias[1, i, c])


def by_autograd(logits, y, bias, old, steps, lr, decay):
    """One classifier, torch's SGD with momentum, the best of all iterates."""
    alpha, beta = (torch.tensor(v, dtype=logits.dtype, requires_grad=True) for v in (1.0, 0.0))
    optimizer = torch.optim.SGD([alpha, beta], lr=lr, momentum=0.9)
    best, least = (1.0, 0.0), float("inf")
    for _ in range(steps + 1):
        before = bias[0, :old] * logits[:, :old] + bias[1, :old]
        z = torch.cat([before, alpha * logits[:, old:] + beta], 1)
        loss = F.cross_entropy(z, y) + decay * beta**2 / 2
        if loss.item() < least:
            best, least = (alpha.item(), beta.item()), loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return best


@pytest.mark.parametrize("steps", [0, 1, 30, 200])
def test_the_pair_is_that_of_torchs_own_descent(steps: int) -> None:
    logits, y, bias = drawn()
    fitted = fit_bias(logits, y, bias, 3, steps=steps, lr=0.1, decay=0.1)
    for i in range(3):
        wanted = by_autograd(logits[i], y, bias[:, i], 3, steps, 0.1, 0.1)
        torch.testing.assert_close(fitted[:, i, 3], torch.tensor(wanted, dtype=torch.float64))


def test_old_pairs_stay_and_new_classes_share_one() -> None:
    logits, y, bias = drawn()
    fitted = fit_bias(logits, y, bias, 2)
    assert torch.equal(fitted[..., :2], bias[..., :2])
    assert torch.equal(fitted[..., 2:], fitted[..., 2:3].expand(-1, -1, 3))
    assert not torch.equal(fitted[:, 0, 2], fitted[:, 1, 2])


def test_new_classes_that_are_scored_too_high_are_put_right() -> None:
    logits, y, _ = drawn(n=200)
    logits += 3 * F.one_hot(y, 5)
    logits[..., 3:] += 4
    bias = torch.stack([torch.ones(3, 5), torch.zeros(3, 5)]).double()
    fitted = fit_bias(logits, y, bias, 3)
    moved = bias_corrected(logits, fitted) - logits
    assert (moved[..., 3:].mean((1, 2)) < -2).all()
    assert (loss_of(logits, y, fitted) < 0.8 * loss_of(logits, y, bias)).all()


def test_decay_is_of_beta() -> None:
    logits, y, bias = drawn()
    assert (fit_bias(logits, y, bias, 3, decay=1e3, lr=1e-4)[1, :, 3].abs() < 1e-3).all()


def test_a_descent_that_overshoots_does_no_harm() -> None:
    logits, y, bias = drawn(scale=300.0)
    start = torch.cat([bias[..., :3], torch.tensor([1.0, 0.0]).expand(3, 2, 2).permute(2, 0, 1)], 2)
    after = loss_of(logits, y, fit_bias(logits, y, bias, 3, decay=0.0))
    assert (after <= loss_of(logits, y, start)).all()


def test_the_surest_classifier_answers() -> None:
    logits, _, _ = drawn()
    found = most_confident(logits)
    for n in range(40):
        p = [logits[i, n].softmax(0) for i in range(3)]
        torch.testing.assert_close(found[n].exp(), max(p, key=lambda one: one.max().item()))
    assert not torch.equal(found, logits[0].log_softmax(1))
