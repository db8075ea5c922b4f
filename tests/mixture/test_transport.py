"""Transport functions against POT, finite differences and closed forms."""

import numpy as np
import pytest
import torch

from ocil.mixture import transport as tr

ot = pytest.importorskip("ot")
DTYPES = [torch.float32, torch.float64]


def clouds(dtype: torch.dtype, batch: int = 3, n: int = 7, m: int = 5, d: int = 4):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(batch, n, d, generator=g, dtype=torch.float64)
    y = torch.randn(batch, m, d, generator=g, dtype=torch.float64) + 0.5
    a = torch.rand(batch, n, generator=g, dtype=torch.float64) + 0.2
    b = torch.rand(batch, m, generator=g, dtype=torch.float64) + 0.2
    a, b = a / a.sum(-1, keepdim=True), b / b.sum(-1, keepdim=True)
    return x.to(dtype), y.to(dtype), a.log().to(dtype), b.log().to(dtype)


def tolerance(dtype: torch.dtype) -> float:
    return 2e-4 if dtype == torch.float32 else 1e-8


@pytest.mark.parametrize("dtype", DTYPES)
def test_plan_and_value_agree_with_pot(dtype: torch.dtype) -> None:
    x, y, log_a, log_b = clouds(dtype)
    cost, eps = tr.squared_distances(x, y), 0.7
    mine = tr.sinkhorn(cost, log_a, log_b, eps, 500)
    theirs = ot.batch.solve_batch(
        cost.double(), eps, log_a.double().exp(), log_b.double().exp(), 5000, 1e-12, "log_sinkhorn"
    )
    assert torch.allclose(mine.plan.double(), theirs.plan, atol=tolerance(dtype))
    product = (log_a.unsqueeze(-1) + log_b.unsqueeze(-2)).double()
    plan = theirs.plan
    value = (plan * (cost.double() + eps * (plan.log() - product))).sum((-2, -1))
    assert torch.allclose(mine.value.double(), value, atol=10 * tolerance(dtype))


def test_masked_problems_equal_the_small_ones() -> None:
    x, y, _, log_b = clouds(torch.float64)
    mask = torch.tensor([[True] * 4 + [False] * 3] * 3)
    log_a = tr.uniform_log_weights(mask, torch.float64)
    cost = tr.squared_distances(x, y)
    cost[:, 4:] = 1e6
    padded = tr.sinkhorn(cost, log_a, log_b, 0.5, 300)
    small = tr.sinkhorn(cost[:, :4], log_a[:, :4], log_b, 0.5, 300)
    assert torch.allclose(padded.plan[:, :4], small.plan) and bool((padded.plan[:, 4:] == 0).all())
    assert torch.allclose(padded.value, small.value)


def test_relaxed_columns_agree_with_pot() -> None:
    x, y, _, log_b = clouds(torch.float64)
    cost, eps, tau = tr.squared_distances(x, y), 0.7, 1.4
    mask = torch.ones(3, 7, dtype=torch.bool)
    resp, _ = tr.responsibilities(-cost.mT / eps, log_b, mask, 2000, tau / (tau + eps))
    for i in range(3):
        a, b = np.full(7, 1 / 7), log_b[i].exp().numpy()
        theirs = ot.unbalanced.sinkhorn_unbalanced(
            a, b, cost[i].numpy(), eps, (1e9, tau), numItermax=50000, stopThr=1e-14
        )
        assert np.allclose(resp[i].mT.numpy() / 7, theirs, atol=1e-6)


def test_semidual_is_a_lower_bound_reached_by_the_potential() -> None:
    x, y, log_a, log_b = clouds(torch.float64)
    cost, eps = tr.squared_distances(y, x), 0.6  # samples y, points x
    best = tr.sinkhorn(cost, log_b, log_a, eps, 1000)
    assert torch.allclose(tr.semidual(best.g, cost, log_a, log_b, eps), best.value)
    other = best.g + 0.1 * torch.randn(best.g.shape, generator=torch.Generator().manual_seed(1))
    assert bool((tr.semidual(other, cost, log_a, log_b, eps) < best.value).all())
    assert torch.allclose(tr.c_transform(best.g, cost, log_a, eps), best.f)


def test_gradients_by_finite_differences() -> None:
    x, y, log_a, log_b = clouds(torch.float64, batch=2, n=4, m=3, d=2)
    phi = torch.randn(2, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    phi.requires_grad_()
    cost = tr.squared_distances(y, x).requires_grad_()
    torch.autograd.gradcheck(lambda p, c: tr.semidual(p, c, log_a, log_b, 0.5), (phi, cost))
    free = cost.detach().mT.contiguous().requires_grad_()
    torch.autograd.gradcheck(lambda c: tr.sinkhorn(c, log_a, log_b, 0.5, 2000).value, (free,))
    y = y.clone().requires_grad_()
    torch.autograd.gradcheck(
        lambda p: tr.sinkhorn(tr.squared_distances(x, p), log_a, log_b, 0.5, 2000).value, (y,)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_point_mass_has_a_closed_form(dtype: torch.dtype) -> None:
    x, y, log_a, _ = clouds(dtype)
    point, one = y[:, :1], torch.zeros(3, 1, dtype=dtype)
    value = tr.sinkhorn(tr.squared_distances(x, point), log_a, one, 0.3, 100).value
    expected = (log_a.exp() * (x - point).square().sum(-1)).sum(-1)
    assert torch.allclose(value, expected, rtol=1e-5)


def test_debiased_costs_of_two_gaussians() -> None:
    grid = (torch.arange(400, dtype=torch.float64) + 0.5) / 400
    x = torch.distributions.Normal(0.0, 1.0).icdf(grid).view(1, -1, 1)  # quantiles, not noise
    y = 1.5 - 2 * x
    weights = tr.uniform_log_weights(torch.ones(1, 400, dtype=torch.bool), torch.float64)
    pairs = ((x, y), (x, x), (y, y))
    cross, *own = (
        tr.sinkhorn(tr.squared_distances(p, q), weights, weights, 0.05, 400).value for p, q in pairs
    )
    close = cross - sum(own) / 2
    exact = (x.sort(1).values - y.sort(1).values).square().mean()  # one dimension: sorted pairs
    assert float(close) == pytest.approx(float(exact), rel=0.02)
    assert float(exact) == pytest.approx(1.5**2 + 1.0**2, rel=0.01)  # Gaussian formula


@pytest.mark.parametrize("dtype", DTYPES)
def test_mixture_wasserstein_agrees_with_pot(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(4)
    shape = (5, 4, 6)
    mu, nu = (torch.randn(shape, generator=g, dtype=torch.float64) for _ in range(2))
    var, omega = (torch.rand(shape, generator=g, dtype=torch.float64) + 0.1 for _ in range(2))
    p, q = (torch.rand(5, 4, generator=g, dtype=torch.float64).log_softmax(-1) for _ in range(2))
    mine = tr.mixture_wasserstein(*(t.to(dtype) for t in (mu, var, p, nu, omega, q)))
    full = [torch.diag_embed(part) for part in (var, omega)]
    for i in range(5):
        weights = (p[i].exp(), q[i].exp())
        loss = ot.gmm.gmm_ot_loss(mu[i], nu[i], full[0][i], full[1][i], *weights)
        assert float(mine[i]) == pytest.approx(float(loss) ** 0.5, rel=2e-3)
    same = tr.mixture_wasserstein(mu, var, p, mu, var, p)
    assert float(same.max()) < 0.02


def test_weighted_distances_match_the_sum() -> None:
    x, y, _, _ = clouds(torch.float64)
    weight = torch.rand(x.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    plain = (weight.unsqueeze(2) * (x.unsqueeze(2) - y.unsqueeze(1)).square()).sum(-1)
    assert torch.allclose(tr.squared_distances(x, y, weight), plain)
    far = tr.squared_distances(x.float() + 1000, y.float() + 1000)
    assert torch.allclose(far.double(), tr.squared_distances(x, y), atol=5e-3)


def test_responsibilities_are_the_rows_of_the_plan() -> None:
    x, y, _, log_b = clouds(torch.float64)
    mask = torch.arange(7) < torch.tensor([[7], [5], [6]])
    log_a = tr.uniform_log_weights(mask, torch.float64)
    cost = tr.squared_distances(x, y)
    resp, _ = tr.responsibilities(-cost.mT, log_b, mask, 300, 1.0)
    expected = tr.sinkhorn(cost, log_a, log_b, 1.0, 300)
    assert torch.allclose(resp * log_a.exp().unsqueeze(1), expected.plan.mT, atol=1e-9)
    free, g = tr.responsibilities(-cost.mT, log_b, mask, 300, 0.0)
    posterior = torch.softmax(log_b.unsqueeze(-1) - cost.mT, 1)
    assert torch.allclose(free, posterior * mask.unsqueeze(1)) and not g.any()


def test_a_plan_with_too_much_in_a_column_is_scaled_down_to_its_marginals() -> None:
    half = torch.tensor([0.5, 0.5])
    found = tr._feasible(torch.tensor([[0.5, 0.0], [0.5, 0.0]]), half, half)
    torch.testing.assert_close(found, torch.full((2, 2), 0.25))


def test_a_component_without_weight_has_no_points_and_no_potential() -> None:
    scores = torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(5))
    log_pi = torch.tensor([[0.4, 0.6, 0.0]]).log()
    mask = torch.ones(1, 5, dtype=torch.bool)
    resp, g = tr.responsibilities(scores, log_pi, mask, steps=5, relax=1.0)
    assert float(g[0, 2]) == 0.0 and g.isfinite().all()
    assert float(resp[0, 2].sum()) < 1e-20
    torch.testing.assert_close(resp.mean(2)[0, :2], torch.tensor([0.4, 0.6]), rtol=1e-2, atol=1e-2)


def test_a_plan_with_too_little_mass_is_filled_up_evenly_and_not_scaled() -> None:
    half = torch.tensor([0.5, 0.5])
    found = tr._feasible(torch.diag(half / 2), half, half)
    torch.testing.assert_close(found, torch.tensor([[0.375, 0.125], [0.125, 0.375]]))
