"""Moments, reading, seeding, grouping and the growing store."""

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from ocil.mixture import grouping, reading, seeding
from ocil.mixture.moments import (
    Moments,
    component_log_density,
    merge,
    merged_gaussian,
    regularise,
    variance_within,
    weighted_moments,
    window_points,
)
from ocil.mixture.store import ClassStore


def random_mixture(dtype: torch.dtype, c: int = 3, k: int = 4, d: int = 6):
    g = torch.Generator().manual_seed(0)
    mu = 2 * torch.randn(c, k, d, generator=g, dtype=torch.float64) + 5
    var = torch.rand(c, k, d, generator=g, dtype=torch.float64) + 0.2
    log_pi = torch.randn(c, k, generator=g, dtype=torch.float64).log_softmax(-1)
    z = 2 * torch.randn(9, d, generator=g, dtype=torch.float64) + 5
    return tuple(t.to(dtype) for t in (mu, var, log_pi, z))


def test_densities_agree_with_scikit_learn_in_both_precisions() -> None:
    for dtype, tolerance in ((torch.float32, 2e-4), (torch.float64, 1e-10)):
        mu, var, log_pi, z = random_mixture(dtype)
        mine = reading.log_density(z, mu, var, log_pi)
        for c in range(3):
            model = GaussianMixture(4, covariance_type="diag")
            model.means_, model.weights_ = mu[c].double().numpy(), log_pi[c].double().exp().numpy()
            model.covariances_ = var[c].double().numpy()
            model.precisions_cholesky_ = 1 / np.sqrt(model.covariances_)
            expected = torch.from_numpy(model.score_samples(z.double().numpy()))
            assert torch.allclose(mine[:, c].double(), expected, rtol=tolerance)
        plain = ((z[:, None, None] - mu).square() / var).sum(-1)
        assert torch.allclose(reading.mahalanobis(z, mu, var, log_pi), plain, rtol=1e-3)
        y = torch.arange(9) % 3
        own = reading.own_distances(z, mu[y], var[y], log_pi[y])
        assert torch.allclose(own, plain[torch.arange(9), y], rtol=1e-3)
        points = window_points(z.expand(3, -1, -1), torch.ones(3, 9, dtype=torch.bool), mu[:, :1])
        joint = component_log_density(points, mu, var) + log_pi.unsqueeze(-1)
        assert torch.allclose(joint.logsumexp(1).T, mine, rtol=2e-4)


def test_far_from_the_origin_float32_keeps_its_digits() -> None:
    mu, var, log_pi, z = random_mixture(torch.float64)
    exact = reading.mahalanobis(z, mu, var, log_pi)
    moved = reading.mahalanobis((z + 300).float(), (mu + 300).float(), var.float(), log_pi.float())
    assert torch.allclose(moved.double(), exact, rtol=2e-3, atol=2e-2)


def test_unused_components_are_infinitely_far() -> None:
    mu, var, log_pi, z = random_mixture(torch.float64)
    log_pi[0, 1] = -torch.inf
    assert bool(reading.mahalanobis(z, mu, var, log_pi)[:, 0, 1].isinf().all())
    assert bool(reading.log_density(z, mu, var, log_pi).isfinite().all())


def test_merging_moments_equals_the_union() -> None:
    g = torch.Generator().manual_seed(1)
    z = torch.randn(2, 10, 3, generator=g, dtype=torch.float64) + 4
    resp = torch.rand(2, 4, 10, generator=g, dtype=torch.float64)
    shift = torch.full((2, 1, 3), 4.0, dtype=torch.float64)
    parts = []
    for part in (slice(0, 4), slice(4, 10)):
        mask = torch.ones(z[:, part].shape[:2], dtype=torch.bool)
        parts.append(weighted_moments(resp[..., part], window_points(z[:, part], mask, shift)))
    whole = merge(*parts)
    mass = resp.sum(-1)
    mean = torch.einsum("bkn,bnd->bkd", resp, z) / mass.unsqueeze(-1)
    gap = (z.unsqueeze(1) - mean.unsqueeze(2)).square()
    var = torch.einsum("bkn,bknd->bkd", resp, gap) / mass.unsqueeze(-1)
    for mine, expected in zip(whole, (mass, mean, var), strict=True):
        assert torch.allclose(mine, expected)


def test_prior_and_floor() -> None:
    var = torch.tensor([[[4.0, 0.0], [1.0, 1.0]]])
    moments = Moments(torch.tensor([[0.0, 10.0]]), torch.zeros(1, 2, 2), var)
    out, pooled = regularise(moments, torch.ones(2), 1.0, 0.01)
    assert torch.allclose(pooled, torch.ones(1, 1, 2)) and torch.allclose(out, torch.ones(1, 2, 2))
    moments = moments._replace(mass=torch.tensor([[10.0, 0.0]]))
    out, pooled = regularise(moments, torch.zeros(2), 0.0, 0.01)
    assert out[0, 0].tolist() == [4.0, np.float32(0.01 * 2.0)]  # floor: a share of the mean, 2


def test_merged_gaussian_has_the_moments_of_samples() -> None:
    mu, var, log_pi, _ = random_mixture(torch.float64)
    mean, spread = merged_gaussian(mu, var, log_pi.exp())
    pi = log_pi.exp().unsqueeze(-1)
    assert torch.allclose(mean, (pi * mu).sum(1))
    assert torch.allclose(spread, (pi * (var + mu.square())).sum(1) - mean.square())


def test_pooling_and_shrinkage() -> None:
    _, var, log_pi, _ = random_mixture(torch.float64)
    log_pi[2] = -torch.inf  # a class never seen has no say
    pooled = reading.pool_variance(var, log_pi)
    expected = (log_pi[:2].exp().unsqueeze(-1) * var[:2]).sum((0, 1)) / 2
    assert torch.allclose(pooled, expected)
    assert torch.allclose(reading.shrink(var, log_pi, 1.0), pooled.expand_as(var))
    assert reading.shrink(var, log_pi, 0.0) is var


def test_seeding_finds_separated_modes_and_ignores_padding() -> None:
    g = torch.Generator().manual_seed(2)
    label = torch.arange(40) % 4
    centres = 6 * torch.eye(4, 30)
    z = torch.stack([centres[label] + torch.randn(40, 30, generator=g) for _ in range(3)])
    z = torch.cat([z, 1e3 * torch.ones(3, 8, 30)], 1)
    mask = torch.arange(48).expand(3, -1) < 40
    noise = torch.rand(3, 4, 4, 48, generator=g)
    kernel = seeding.gram(z, mask)
    scores = seeding.principal_scores(kernel, 4)
    for space in (kernel, scores @ scores.mT):
        found = seeding.partition(space, mask, noise)
        assert bool((found[..., 40:] == 0).all())
        names = found.argmax(1)[:, :40]
        for b in range(3):
            pairs = set(zip(names[b].tolist(), label.tolist(), strict=True))
            assert len(pairs) == 4  # each cluster is one mode
    explicit = sum(
        float((z[0, :40][names[0] == k] - z[0, :40][names[0] == k].mean(0)).square().sum())
        for k in range(4)
    )
    assert abs(float(seeding.scatter_within(kernel, found)[0]) - explicit) < 1e-2 * explicit


def test_kmeans_spreads_where_random_does_not_have_to() -> None:
    z = torch.cat([torch.zeros(1, 30, 2), torch.full((1, 2, 2), 9.0)], 1)
    mask = torch.ones(1, 32, dtype=torch.bool)
    for seed in range(20):
        noise = torch.rand(1, 1, 2, 32, generator=torch.Generator().manual_seed(seed))
        centres = seeding.first_centres(seeding.gram(z, mask), mask, noise[:, 0], True)
        assert float(centres[0, :, 30:].sum()) == 1.0  # the second centre is always in the far mode


def test_grouping_and_rounds() -> None:
    labels = np.array([5, 1, 5, 5, 1, 9])
    group = grouping.group_by_class(labels)
    assert group.classes.tolist() == [1, 5, 9] and group.sizes.tolist() == [2, 3, 1]
    assert group.order.tolist() == [1, 4, 0, 2, 3, 5]
    first, second = grouping.split(group, 2)
    assert first.order.tolist() == [1, 4, 0, 2, 5] and second.order.tolist() == [3]
    assert second.classes.tolist() == [5]


def test_store_grows_and_keeps_its_rows() -> None:
    store = ClassStore(torch.device("cpu"), torch.float32)
    store.add("a", (2,), 7.0)
    store.add("n", (), 3, host=True)
    store.grow(1)
    store.put("a", torch.tensor([0]), torch.ones(1, 2))
    store.host("n")[0] = 11
    store.grow(20)
    assert store["a"].shape == (20, 2) and store["a"][0].tolist() == [1, 1]
    assert store["a"][19].tolist() == [7, 7] and store["n"].tolist() == [11] + [3] * 19


def test_variance_within_against_each_row_alone() -> None:
    z = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = torch.tensor([[True] * 5, [True] * 2 + [False] * 3, [True] + [False] * 4])
    rows = [z[0], z[1, :2]]
    wanted = sum((r - r.mean(0)).square().sum(0) for r in rows) / (4 + 1)
    found = variance_within(z, mask)
    assert found is not None
    assert found.tolist() == pytest.approx(wanted.tolist())
    assert variance_within(z, mask & mask.cumsum(1).eq(1)) is None
