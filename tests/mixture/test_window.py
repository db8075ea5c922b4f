"""The pieces of a window step, each by its formula."""

from __future__ import annotations

import pytest
import torch

from ocil.errors import OcilError
from ocil.mixture import Mixtures, MixtureSettings, window
from ocil.mixture.moments import Moments, cap, discount, stepwise, window_points


def moments(mass: list[float], mean: list[float], var: list[float]) -> Moments:
    parts = [torch.tensor(values, dtype=torch.float64) for values in (mass, mean, var)]
    return Moments(parts[0][None], parts[1][None, :, None], parts[2][None, :, None])


def test_the_stepwise_average_keeps_one_share_and_takes_the_other() -> None:
    old, new = moments([0.6, 0.4], [1.0, 2.0], [1.0, 1.0]), moments([3.0, 1.0], [5.0, 2.0], [1, 1])
    found = stepwise(old, new, torch.tensor([[0.2]], dtype=torch.float64))
    # S <- 0.8 S + 0.2 s with the masses of s as shares: 0.75 and 0.25
    assert found.mass[0].tolist() == pytest.approx([0.8 * 0.6 + 0.15, 0.8 * 0.4 + 0.05])
    assert float(found.mean[0, 0]) == pytest.approx((0.48 * 1.0 + 0.15 * 5.0) / 0.63)


@pytest.mark.parametrize("precision", [1.0, 4.0])
def test_drift_discounts_old_mass_by_its_formula(precision: float) -> None:
    old, new = moments([40.0, 9.0], [0.0, 1.0], [1, 1]), moments([8.0, 2.0], [1.0, 1.5], [1, 1])
    gap = new.mean - old.mean
    found = discount(old, new, gap, torch.full_like(gap, precision), 1.5)
    total = sum(
        n * precision * g**2 - 1.5 * (1 + n / mass)
        for n, g, mass in ((8.0, 1.0, 40.0), (2.0, 0.5, 9.0))
    )
    excess = max(0.0, total) / 10
    assert total > 0
    assert found.mass[0].tolist() == pytest.approx([m / (1 + m * excess) for m in (40.0, 9.0)])
    steady = discount(old, new, gap, torch.full_like(gap, precision), 1e9)
    assert torch.equal(steady.mass, old.mass)


def test_old_mass_is_capped_and_never_raised() -> None:
    assert cap(moments([30.0, 10.0], [0, 0], [1, 1]), 20.0).mass[0].tolist() == [
        15.0,
        5.0,
    ]
    assert cap(moments([3.0, 1.0], [0, 0], [1, 1]), 20.0).mass[0].tolist() == [3.0, 1.0]


def test_batch_em_knows_nothing_but_its_queue() -> None:
    s = MixtureSettings(components=1, objective="batch-em")
    mixtures, draw = Mixtures(2, s), torch.Generator().manual_seed(0)
    for at in (9.0, 0.0):
        z = torch.randn(80, 2, generator=draw) + at
        mixtures.update(z, torch.zeros(80, dtype=torch.int64), draw)
    torch.testing.assert_close(mixtures.mu[0, 0], z[-64:].mean(0), rtol=1e-3, atol=1e-3)


def test_a_space_without_dimensions_is_refused() -> None:
    with pytest.raises(OcilError, match="is 0; give at least 1"):
        Mixtures(0)
    assert Mixtures(1).dim == 1


def test_a_stepwise_update_takes_the_rate_of_the_new_points() -> None:
    z = torch.tensor([[[4.0], [6.0]]], dtype=torch.float64)  # mean 5, variance 1
    points = window_points(z, torch.ones(1, 2, dtype=torch.bool), z.new_zeros(1, 1, 1))
    one = z.new_ones(1, 1, 1)
    mixture, old = (one, one, z.new_zeros(1, 1)), moments([1.0], [1.0], [3.0])
    rate = z.new_full((1, 1), 0.25)
    found = window.window_step(points, mixture, old, rate, z.new_ones(1), 1e-3, 0, 1)
    assert float(found.mixture[0]) == pytest.approx(0.75 * 1 + 0.25 * 5)
    assert float(found.joined.mass) == pytest.approx(1)
    assert float(found.joined.var) == pytest.approx(0.75 * (3 + 1**2) + 0.25 * (1 + 5**2) - 2**2)


def test_points_that_left_the_window_count_as_512_at_most() -> None:
    draw = torch.Generator().manual_seed(0)
    same = torch.randn(16, 2, generator=draw)  # a window of them: nothing drifts
    m = Mixtures(2, MixtureSettings(components=1))
    for _ in range(50):
        m.update(same, torch.zeros(16, dtype=torch.int64), draw)
    assert float(m.store["old_mass"].sum()) == pytest.approx(512.0)


def test_a_window_may_be_as_long_as_its_queue_and_no_longer() -> None:
    made = Mixtures(2, MixtureSettings(window=window.WindowSettings(points=64, queue=64)))
    assert (made.window, made.length) == (64, 64)
    with pytest.raises(OcilError, match="at most the queue, 64 points"):
        MixtureSettings(window=window.WindowSettings(points=65, queue=64))


def test_a_class_without_points_has_unit_variances() -> None:
    m = Mixtures(3, MixtureSettings())
    m.store.grow(2)
    assert torch.equal(m.store["var"], torch.ones(2, 4, 3))
