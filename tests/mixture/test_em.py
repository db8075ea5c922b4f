"""The pieces of a window step, each by its formula."""

from __future__ import annotations

import math

import pytest
import torch

from ocil.errors import OcilError
from ocil.mixture import Mixtures, MixtureSettings, em
from ocil.mixture.moments import Moments, window_points


def moments(mass: list[float], mean: list[float], var: list[float]) -> Moments:
    parts = [torch.tensor(values, dtype=torch.float64) for values in (mass, mean, var)]
    return Moments(parts[0][None], parts[1][None, :, None], parts[2][None, :, None])


def test_the_stepwise_average_keeps_one_share_and_takes_the_other() -> None:
    old, new = moments([0.6, 0.4], [1.0, 2.0], [1.0, 1.0]), moments([3.0, 1.0], [5.0, 2.0], [1, 1])
    found = em.stepwise(old, new, torch.tensor([[0.2]], dtype=torch.float64))
    # S <- 0.8 S + 0.2 s with the masses of s as shares: 0.75 and 0.25
    assert found.mass[0].tolist() == pytest.approx([0.8 * 0.6 + 0.15, 0.8 * 0.4 + 0.05])
    assert float(found.mean[0, 0]) == pytest.approx((0.48 * 1.0 + 0.15 * 5.0) / 0.63)


@pytest.mark.parametrize("precision", [1.0, 4.0])
def test_drift_discounts_old_mass_by_its_formula(precision: float) -> None:
    old, new = moments([40.0, 9.0], [0.0, 1.0], [1, 1]), moments([8.0, 2.0], [1.0, 1.5], [1, 1])
    gap = new.mean - old.mean
    found = em.discount(old, new, gap, torch.full_like(gap, precision), 1.5)
    total = sum(
        n * precision * g**2 - 1.5 * (1 + n / mass)
        for n, g, mass in ((8.0, 1.0, 40.0), (2.0, 0.5, 9.0))
    )
    excess = max(0.0, total) / 10
    assert total > 0
    assert found.mass[0].tolist() == pytest.approx([m / (1 + m * excess) for m in (40.0, 9.0)])
    assert em.discount(old, new, gap, torch.full_like(gap, precision), 0.0) is old


def test_old_mass_is_capped_and_never_raised() -> None:
    assert em.cap(moments([30.0, 10.0], [0, 0], [1, 1]), 20.0).mass[0].tolist() == [15.0, 5.0]
    assert em.cap(moments([3.0, 1.0], [0, 0], [1, 1]), 20.0).mass[0].tolist() == [3.0, 1.0]


def test_batch_em_knows_nothing_but_its_queue() -> None:
    mixtures, draw = Mixtures(2, em.batch_em(components=1)), torch.Generator().manual_seed(0)
    for at in (9.0, 0.0):
        z = torch.randn(80, 2, generator=draw) + at
        mixtures.update(z, torch.zeros(80, dtype=torch.int64), draw)
    torch.testing.assert_close(mixtures.mu[0, 0], z[-64:].mean(0), rtol=1e-3, atol=1e-3)


def test_plain_stepwise_em_has_nothing_of_ours() -> None:
    plain = em.stepwise_em(plain=True, components=3)
    assert (plain.objective, plain.average, plain.relax) == ("em", "stepwise", 0.0)
    assert (plain.window, plain.seeding, plain.reseed_every, plain.restarts) == (0, "random", 0, 1)
    assert plain.components == em.stepwise_em(components=3).components == 3


def test_a_space_without_dimensions_is_refused() -> None:
    with pytest.raises(OcilError, match="is 0; give at least 1"):
        Mixtures(0)
    assert Mixtures(1).dim == 1


@pytest.mark.parametrize("potential", [-9.0, -0.4, 0.4, 9.0])
def test_a_weight_moves_by_at_most_a_factor_of_e_at_a_time(potential: float) -> None:
    s = MixtureSettings(components=2, relax=1.0, potential_rate=0.5)
    log_pi = torch.tensor([[0.3, 0.7]], dtype=torch.float64).log()
    g = torch.tensor([[potential, 0.0]], dtype=torch.float64)
    found = em.weights(torch.ones_like(log_pi), log_pi, g, s).exp()
    first = 0.3 * math.exp({-9.0: 1.0, -0.4: 0.2, 0.4: -0.2, 9.0: -1.0}[potential])
    assert found[0].tolist() == pytest.approx([first / (first + 0.7), 0.7 / (first + 0.7)])


def test_a_stepwise_update_takes_the_rate_of_the_new_points() -> None:
    z = torch.tensor([[[4.0], [6.0]]], dtype=torch.float64)  # mean 5, variance 1
    points = window_points(z, torch.ones(1, 2, dtype=torch.bool), z.new_zeros(1, 1, 1))
    one = z.new_ones(1, 1, 1)
    mixture, old = (one, one, z.new_zeros(1, 1)), moments([1.0], [1.0], [3.0])
    rate = z.new_full((1, 1), 0.25)
    found = em.window_step(points, mixture, old, rate, z.new_ones(1), em.stepwise_em(components=1))
    assert float(found.mu) == pytest.approx(0.75 * 1 + 0.25 * 5)
    assert float(found.joined.mass) == pytest.approx(1)
    assert float(found.joined.var) == pytest.approx(0.75 * (3 + 1**2) + 0.25 * (1 + 5**2) - 2**2)
