"""Gumbel-Softmax samples: law, gradients, straight-through."""

import math

import pytest
import torch

from ocil.mixture.sampling import Noise, draw, draw_gumbel, gumbel_softmax, sample_mixture


def mixture(dtype: torch.dtype = torch.float64):
    g = torch.Generator().manual_seed(0)
    mu = 3 * torch.randn(2, 3, 4, generator=g, dtype=dtype)
    sigma = torch.rand(2, 3, 4, generator=g, dtype=dtype) + 0.3
    log_pi = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]], dtype=dtype).log()
    return mu, sigma, log_pi


def test_hard_samples_follow_the_mixture() -> None:
    mu, sigma, log_pi = mixture()
    noise = draw((2, 20000, 3), 4, torch.Generator().manual_seed(1), mu)
    sample = sample_mixture(mu, sigma, log_pi, noise, 0.5, hard=True)
    share = sample.labels.mean(1)
    assert torch.allclose(share, log_pi.exp(), atol=0.015)
    mean = (log_pi.exp().unsqueeze(-1) * mu).sum(1)
    var = (log_pi.exp().unsqueeze(-1) * (sigma.square() + mu.square())).sum(1) - mean.square()
    assert torch.allclose(sample.points.mean(1), mean, atol=0.12)
    assert torch.allclose(sample.points.var(1), var, rtol=0.05)
    picked = sample.labels.argmax(-1)
    assert torch.allclose(sample.var[0], sigma[0].square()[picked[0]])


def test_the_temperature_is_that_of_the_softmax() -> None:
    log_pi = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    gumbel = torch.tensor([[0.4, -1.0, 0.1], [2.0, 0.3, -0.7]], dtype=torch.float64)
    for temperature in (0.2, 0.5, 3.0):
        found = gumbel_softmax(log_pi, gumbel, temperature, hard=False)
        for row, noise in zip(found.tolist(), gumbel.tolist(), strict=True):
            powers = [
                math.exp((math.log(p) + g) / temperature)
                for p, g in zip((0.2, 0.3, 0.5), noise, strict=True)
            ]
            assert row == pytest.approx([power / sum(powers) for power in powers])


def test_gradients_by_finite_differences_and_straight_through() -> None:
    mu, sigma, log_pi = (t.requires_grad_() for t in mixture())
    noise = draw((2, 5, 3), 4, torch.Generator().manual_seed(2), mu)
    torch.autograd.gradcheck(
        lambda *p: sample_mixture(*p, noise, 0.7, False).points, (mu, sigma, log_pi)
    )
    weight = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(3), dtype=mu.dtype)
    grads = []
    for hard in (False, True):
        labels = gumbel_softmax(log_pi, noise.gumbel, 0.7, hard)
        grads.append(torch.autograd.grad((weight * labels).sum(), log_pi)[0])
        assert torch.allclose(labels.sum(-1), torch.ones(2, 5, dtype=mu.dtype))
    assert torch.allclose(*grads)


def test_same_generator_same_sample() -> None:
    mu, sigma, log_pi = mixture(torch.float32)
    first, second = (
        sample_mixture(
            mu, sigma, log_pi, draw((2, 5, 3), 4, torch.Generator().manual_seed(7), mu), 0.5, False
        )
        for _ in range(2)
    )
    assert torch.equal(first.points, second.points)


def test_a_sample_is_the_mean_plus_the_deviation_times_the_noise() -> None:
    mu, sigma, log_pi = mixture()
    noise = draw((2, 5, 3), 4, torch.Generator().manual_seed(4), mu)
    still = sample_mixture(mu, sigma, log_pi, Noise(noise.gumbel, 0 * noise.normal), 0.5, True)
    found = sample_mixture(mu, sigma, log_pi, noise, 0.5, True)
    for c in range(2):
        for s, k in enumerate(found.labels[c].argmax(-1).tolist()):
            torch.testing.assert_close(still.points[c, s], mu[c, k])
            torch.testing.assert_close(
                found.points[c, s], mu[c, k] + sigma[c, k] * noise.normal[c, s, k]
            )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("drawn", [0.0, 1 - 2**-24])
def test_gumbel_variables_are_finite_at_both_ends_of_the_uniform_ones(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, drawn: float
) -> None:
    monkeypatch.setattr(
        torch, "rand", lambda shape, dtype, **_: torch.full(shape, drawn, dtype=dtype)
    )
    assert draw_gumbel((4,), torch.Generator(), torch.empty(0, dtype=dtype)).isfinite().all()
