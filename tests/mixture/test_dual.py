"""Gradient objectives: formulas, the Kantorovich network, hand-written Adam, known failures."""

import math

import pytest
import torch

from ocil.fields import from_mapping
from ocil.mixture import Mixtures, MixtureSettings, objectives
from ocil.mixture.dual import BETAS, NETWORK, Dual
from ocil.mixture.objectives import Sample, draw, sample_mixture

GIVEN = {
    "objective": "dual", "components": 2, "window.queue": 16, "start.points": 8,
    "window.points": None,
}  # fmt: skip


def made(**changes: object) -> MixtureSettings:
    """With "__" for the dot of a group's option."""
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return from_mapping(MixtureSettings, GIVEN | given)


def mover(mixtures: Mixtures) -> Dual:
    assert isinstance(mixtures.mover, Dual)
    return mixtures.mover


DUAL = made(dual__hidden=6)
COLD = 1e-9  # a temperature at which a sample is that of one component


def problem(dtype: torch.dtype = torch.float64):
    g = torch.Generator().manual_seed(0)
    z = torch.randn(2, 5, 3, generator=g, dtype=dtype)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    mu = torch.randn(2, 2, 3, generator=g, dtype=dtype)
    log_sigma = 0.3 * torch.randn(2, 2, 3, generator=g, dtype=dtype)
    logits = torch.randn(2, 2, generator=g, dtype=dtype)
    network = [torch.randn(s, generator=g, dtype=dtype) for s in ((2, 3, 6), (2, 6), (2, 6))]
    return z, mask, (mu, log_sigma, logits), network


def sampled(mu, log_sigma, logits, count: int = 5) -> Sample:
    noise = draw((2, count, 2), 3, torch.Generator().manual_seed(1), mu)
    return sample_mixture(mu, log_sigma.exp(), logits.log_softmax(-1), noise, DUAL.dual.temperature)


@pytest.mark.parametrize("cost", ["mahalanobis", "euclidean"])
def test_dual_is_the_printed_formula(cost: str) -> None:
    z, mask, values, network = problem()
    s = made(dual__cost=cost, dual__eps=0.4).dual
    sample = sampled(*values)
    mine = objectives.dual_loss(sample, z, mask, network, s)
    for c, n in ((0, 5), (1, 3)):
        w1, b1, w2 = (part[c] for part in network)
        phi = torch.nn.functional.softplus(z[c, :n] @ w1 + b1) @ w2
        total = phi.mean()
        for i in range(n):  # as many samples as points
            weight = sample.var[c, i] if cost == "mahalanobis" else 1.0
            d = ((sample.points[c, i] - z[c, :n]).square() / weight).sum(-1) / 3
            total = total - 0.4 * ((phi - d) / 0.4).exp().mean().log() / n
        assert float(mine[c]) == pytest.approx(float(total), rel=1e-9)


def test_dual_gradients_by_finite_differences() -> None:
    z, mask, values, network = problem()
    leaves = [v.requires_grad_() for v in (*values, *network)]
    s = made(dual__cost="euclidean").dual  # the Mahalanobis cost detaches its variance on purpose
    torch.autograd.gradcheck(
        lambda a, b, c, *w: objectives.dual_loss(sampled(a, b, c), z, mask, list(w), s), leaves
    )


def test_one_to_one_pairs_do_not_see_the_network() -> None:
    z, mask, values, network = problem()
    s = made(dual__pairing="one").dual
    sample = sampled(*values)
    first = objectives.dual_loss(sample, z, mask, network, s)
    assert torch.equal(first, objectives.dual_loss(sample, z, mask, [], s))
    gap = ((sample.points - z).square() / sample.var).mean(-1)
    assert float(first[1]) == pytest.approx(float(gap[1, :3].mean()))


def test_ascent_raises_the_dual_towards_sinkhorn() -> None:
    from ocil.mixture.transport import sinkhorn, uniform_log_weights

    z, mask, values, _ = problem()
    sample, s = sampled(*values), made(dual__rate_phi=0.05).dual
    weights = uniform_log_weights(mask, z.dtype)
    best = sinkhorn(objectives.pair_cost(sample, z, s), weights, weights, s.eps, 500).value
    g = torch.Generator().manual_seed(2)
    network = [torch.randn(2, 3, 32, generator=g, dtype=z.dtype)] + [
        torch.zeros(2, 32, dtype=z.dtype) for _ in range(2)
    ]
    network = [w.requires_grad_() for w in network]
    start = objectives.dual_loss(sample, z, mask, network, s).detach()
    optimiser = torch.optim.Adam(network, lr=0.02, maximize=True)
    for _ in range(600):
        optimiser.zero_grad()
        objectives.dual_loss(sample, z, mask, network, s).sum().backward()
        optimiser.step()
    end = objectives.dual_loss(sample, z, mask, network, s).detach()
    assert bool((end <= best + 1e-9).all()) and bool((end > start).all())
    assert torch.allclose(end, best, atol=0.02)


def entropic_cost(cost: list[list[float]], n: int, eps: float) -> float:
    """min <P, C> + eps KL(P || a b^T) between equal weights, by scaling rows and columns."""
    m = len(cost)
    kernel = [[math.exp(-cost[i][j] / eps) for j in range(n)] for i in range(m)]
    u, v = [1.0] * m, [1.0] * n
    for _ in range(2000):
        u = [1 / sum(kernel[i][j] * v[j] / n for j in range(n)) for i in range(m)]
        v = [1 / sum(kernel[i][j] * u[i] / m for i in range(m)) for j in range(n)]
    plan = [[u[i] * kernel[i][j] * v[j] / (m * n) for j in range(n)] for i in range(m)]
    return sum(
        plan[i][j] * (cost[i][j] + eps * math.log(plan[i][j] * m * n))
        for i in range(m) for j in range(n)
    )  # fmt: skip


@pytest.mark.parametrize("cost", ["mahalanobis", "euclidean"])
def test_debiased_is_the_cross_cost_less_half_of_the_own(
    cost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    z, mask, values, _ = problem()
    s = made(objective="debiased", dual__cost=cost, dual__eps=0.8).dual
    monkeypatch.setattr(objectives, "PLAN_STEPS", 500)
    first, second = sampled(*values, count=4), sampled(*(v + 0.1 for v in values), count=4)
    mine = objectives.debiased_loss(first, second, z, mask, s)

    def costs(c: int, points: torch.Tensor) -> list[list[float]]:
        weight = first.var[c] if cost == "mahalanobis" else torch.ones_like(first.var[c])
        gaps = (first.points[c][:, None] - points[None]).square() / weight[:, None]
        return (gaps.sum(-1) / 3).tolist()

    for c, n in ((0, 5), (1, 3)):
        cross = entropic_cost(costs(c, z[c, :n]), n, 0.8)
        own = entropic_cost(costs(c, second.points[c]), 4, 0.8)
        assert float(mine[c]) == pytest.approx(cross - own / 2, rel=1e-6)


def test_nll_matches_torch_distributions() -> None:
    z, mask, (mu, log_sigma, logits), _ = problem()
    mine = objectives.nll_loss(mu, log_sigma.exp(), logits.log_softmax(-1), z, mask)
    normal = torch.distributions.Normal(mu.unsqueeze(1), log_sigma.exp().unsqueeze(1))
    joint = normal.log_prob(z.unsqueeze(2)).sum(-1) + logits.log_softmax(-1).unsqueeze(1)
    expected = -(joint.logsumexp(-1) * mask).sum(-1) / mask.sum(-1) / 3
    assert torch.allclose(mine, expected)


def test_adam_by_hand_is_torch_adam_per_class() -> None:
    """Class 1 misses every second step; its state must be as if those steps did not exist."""
    mixtures = Mixtures(3, made(objective="nll"))
    mixtures.store.grow(2)
    g = torch.Generator().manual_seed(3)
    values = torch.zeros(2, 2, 3)
    theirs = [torch.zeros(2, 3, requires_grad=True) for _ in range(2)]
    optimisers = [torch.optim.Adam([t], lr=0.1, betas=BETAS) for t in theirs]
    counts = [0, 0]
    for turn in range(6):
        rows = torch.tensor([0, 1] if turn % 2 == 0 else [0])
        grad = torch.randn(len(rows), 2, 3, generator=g)
        steps = torch.tensor([counts[int(r)] for r in rows])
        adam = mover(mixtures).descend
        values[rows] = adam(rows, ("d.mu",), [values[rows]], [grad], [0.1], steps)[0]
        for i, row in enumerate(rows.tolist()):
            theirs[row].grad = grad[i].clone()
            optimisers[row].step()
            counts[row] += 1
    assert torch.allclose(values, torch.stack([t.detach() for t in theirs]), atol=1e-6)


def placed(s: MixtureSettings) -> Mixtures:
    """One class with two components of unequal weights and variances."""
    mixtures = Mixtures(3, s, dtype=torch.float64)
    mixtures.store.grow(1)
    values = {
        "mu": torch.tensor([[[0.0, 1, 2], [5, 4, 3]]]),
        "var": torch.tensor([[[1.0, 2, 3], [30, 40, 50]]]),
        "log_pi": torch.tensor([[0.25, 0.75]]).log(),
    }
    mixtures.store.put(torch.tensor([0]), {k: v.double() for k, v in values.items()})
    return mixtures


def test_the_first_step_of_the_means_is_the_rate_in_units_of_the_rms_sigma() -> None:
    mixtures, g = placed(made(objective="nll")), torch.Generator().manual_seed(0)
    before = mixtures.mu.clone()
    zero = torch.tensor([0])
    z = torch.randn(1, 9, 3, generator=g, dtype=torch.float64)
    mask, floor = torch.ones(1, 9, dtype=torch.bool), torch.tensor(1e-6)
    mover(mixtures).step(zero, zero, z, mask, floor, g)
    rms = math.sqrt(0.25 * (1 + 2 + 3) / 3 + 0.75 * (30 + 40 + 50) / 3)
    # Adam's first step is the rate itself, whatever the gradient
    wanted = torch.full_like(before, mixtures.settings.dual.rate_mu * rms)
    torch.testing.assert_close((mixtures.mu - before).abs(), wanted, rtol=1e-3, atol=0)


def test_where_a_class_lies_changes_nothing_but_its_place() -> None:
    """The network sees points relative to the centre of their class."""
    g = torch.Generator().manual_seed(0)
    z, far = torch.randn(1, 9, 3, generator=g, dtype=torch.float64), 40.0
    found = []
    for shift in (0.0, far):
        mixtures, g = placed(DUAL), torch.Generator().manual_seed(1)
        zero = torch.tensor([0])
        mixtures.store.put(zero, {"phi.w2": torch.ones(1, 6, dtype=torch.float64)})
        mixtures.store["mu"][0] += shift
        mask, floor = torch.ones(1, 9, dtype=torch.bool), torch.tensor(1e-6)
        mover(mixtures).step(zero, zero, z + shift, mask, floor, g)
        found.append(mixtures.store.state_dict())
    found[0]["mu"] = found[0]["mu"] + far
    for name in ("mu", "var", "log_pi", *NETWORK):
        torch.testing.assert_close(found[1][name], found[0][name])


def test_the_network_climbs_as_torch_adam_does_over_several_updates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mixtures, g = placed(DUAL), torch.Generator().manual_seed(0)
    mixtures.store.put(torch.tensor([0]), {"phi.w2": torch.ones(1, 6, dtype=torch.float64)})
    theirs = [mixtures.store[name][:1].clone().requires_grad_() for name in NETWORK]
    adam = torch.optim.Adam(theirs, lr=DUAL.dual.rate_phi, betas=BETAS)
    real, steps = Dual.descend, []

    def moved(self, rows, names, values, grads, rates, count):
        if names == NETWORK:
            for p, grad in zip(theirs, grads, strict=True):
                p.grad = grad.clone()
            adam.step()
            steps.append(1)
        return real(self, rows, names, values, grads, rates, count)

    monkeypatch.setattr(Dual, "descend", moved)
    z = torch.randn(1, 9, 3, generator=g, dtype=torch.float64)
    for update in range(3):
        rows, so_far = torch.tensor([0]), torch.tensor([update])
        mask, floor = torch.ones(1, 9, dtype=torch.bool), torch.tensor(1e-6)
        mover(mixtures).step(rows, so_far, z, mask, floor, g)
    assert len(steps) == 3 * DUAL.dual.ascents
    for name, p in zip(NETWORK, theirs, strict=True):
        torch.testing.assert_close(mixtures.store[name][:1], p.detach())


@pytest.mark.parametrize("objective", ["dual", "debiased"])
def test_a_class_with_one_point_is_left_alone(objective: str) -> None:
    mixtures, g = Mixtures(3, made(objective=objective)), torch.Generator().manual_seed(4)
    for _ in range(2):
        mixtures.update(torch.randn(20, 3, generator=g), torch.arange(20) % 2, g)
    before = mixtures.store.state_dict()
    z = torch.randn(4, 3, generator=g)
    mixtures.update(z, torch.tensor([0, 1, 1, 1]), g)
    after = mixtures.store.state_dict()
    changed = {name for name in before if not torch.equal(before[name][0], after[name][0])}
    assert changed == {"queue", "count", "first"}  # networks and optimiser too stay as they are
    assert not torch.equal(before["mu"][1], after["mu"][1])


def test_a_batch_of_lone_points_moves_nothing() -> None:
    mixtures, g = Mixtures(3, DUAL), torch.Generator().manual_seed(4)
    mixtures.update(torch.randn(40, 3, generator=g), torch.arange(40) % 2, g)
    before = mixtures.mu.clone()
    mixtures.update(torch.randn(2, 3, generator=g), torch.arange(2), g)
    assert torch.equal(mixtures.mu, before)


def test_every_class_has_the_samples_asked_for() -> None:
    """Also one with fewer points than the class with the most: J is that of the class alone."""
    z, mask, values, network = problem()
    s = made(dual__samples=7).dual
    sample = sampled(*values, count=7)
    both = objectives.dual_loss(sample, z, mask, network, s)
    few = int(mask[1].sum())
    assert few < mask.shape[1]
    one = type(sample)(*(part[1:] for part in sample))
    alone = objectives.dual_loss(one, z[1:, :few], mask[1:, :few], [w[1:] for w in network], s)
    torch.testing.assert_close(both[1:], alone)


def test_the_plain_dual_collapses_sigma_and_the_default_does_not() -> None:
    """The measured trap that the default exists for."""
    ratio = {}
    for s in (made(start__again=None), MixtureSettings(components=2)):
        mixtures, g = Mixtures(32, s), torch.Generator().manual_seed(5)
        for _ in range(200):
            mixtures.update(torch.randn(6, 32, generator=g), torch.zeros(6, dtype=torch.long), g)
        ratio[s.objective] = float(mixtures.var.mean().sqrt())
    assert ratio["dual"] < 0.6 and ratio["sinkhorn"] == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("objective", ["dual", "nll", "debiased"])
@pytest.mark.parametrize("grown", [False, True])
def test_variances_stay_above_the_floor(objective: str, grown: bool) -> None:
    """Also where the classes were announced before their first points, as OTC does."""
    g = torch.Generator().manual_seed(0)
    s = made(objective=objective, dual__floor=0.05, dual__rate_sigma=0.3)
    mixtures = Mixtures(4, s)
    if grown:
        mixtures.store.grow(2)
    y = torch.arange(16) % 2
    for _ in range(200):
        mixtures.update(torch.randn(16, 4, generator=g) * 0.1 + y[:, None], y, g)
    assert mixtures.pooled_variance.tolist() == pytest.approx([0.01] * 4, rel=0.25)
    least = 0.05 * float(mixtures.pooled_variance.mean())
    assert float(mixtures.var.min()) >= 0.999 * least
    assert mixtures.store["least"].tolist() == pytest.approx([least] * 2)


def test_a_class_that_collapses_to_a_point_keeps_the_numbers_finite() -> None:
    g = torch.Generator().manual_seed(0)
    mixtures = Mixtures(4, made(dual__rate_sigma=0.5, start__again=None))
    mixtures.store.grow(1)
    for _ in range(200):
        mixtures.update(torch.tensor([[1.0, 0, 0, 0]]).repeat(8, 1), torch.zeros(8).long(), g)
    assert torch.isfinite(mixtures.mu).all() and torch.isfinite(mixtures.log_pi).all()
    assert torch.isfinite(mixtures.var).all() and bool((mixtures.var > 0).all())


def mixture(dtype: torch.dtype = torch.float64):
    g = torch.Generator().manual_seed(0)
    mu = 3 * torch.randn(2, 3, 4, generator=g, dtype=dtype)
    sigma = torch.rand(2, 3, 4, generator=g, dtype=dtype) + 0.3
    log_pi = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]], dtype=dtype).log()
    return mu, sigma, log_pi


def test_cold_samples_follow_the_mixture() -> None:
    mu, sigma, log_pi = mixture()
    noise = draw((2, 20000, 3), 4, torch.Generator().manual_seed(1), mu)
    sample = sample_mixture(mu, sigma, log_pi, noise, COLD)
    mean = (log_pi.exp().unsqueeze(-1) * mu).sum(1)
    var = (log_pi.exp().unsqueeze(-1) * (sigma.square() + mu.square())).sum(1) - mean.square()
    assert torch.allclose(sample.points.mean(1), mean, atol=0.12)
    assert torch.allclose(sample.points.var(1), var, rtol=0.05)
    picked = (log_pi[0] + noise[0][0]).argmax(-1)
    share = picked.bincount() / len(picked)
    assert torch.allclose(share.double(), log_pi[0].exp(), atol=0.015)
    torch.testing.assert_close(sample.var[0], sigma[0].square()[picked], rtol=0.1, atol=0.1)


def test_the_temperature_is_that_of_the_softmax() -> None:
    log_pi = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    gumbel = torch.tensor([[0.4, -1.0, 0.1], [2.0, 0.3, -0.7]], dtype=torch.float64)
    corners, still = torch.eye(3, dtype=torch.float64), torch.zeros(2, 3, 3, dtype=torch.float64)
    for temperature in (0.2, 0.5, 3.0):  # centroids at the corners: a sample is its weights
        noise = (gumbel, still)
        found = sample_mixture(corners, corners, log_pi, noise, temperature).points
        for row, noise in zip(found.tolist(), gumbel.tolist(), strict=True):
            powers = [
                math.exp((math.log(p) + g) / temperature)
                for p, g in zip((0.2, 0.3, 0.5), noise, strict=True)
            ]
            assert row == pytest.approx([power / sum(powers) for power in powers])


def test_gradients_of_samples_by_finite_differences() -> None:
    mu, sigma, log_pi = (t.requires_grad_() for t in mixture())
    noise = draw((2, 5, 3), 4, torch.Generator().manual_seed(2), mu)
    torch.autograd.gradcheck(lambda *p: sample_mixture(*p, noise, 0.7).points, (mu, sigma, log_pi))


def test_same_generator_same_sample() -> None:
    mu, sigma, log_pi = mixture(torch.float32)
    first, second = (
        sample_mixture(
            mu, sigma, log_pi, draw((2, 5, 3), 4, torch.Generator().manual_seed(7), mu), 0.5
        )
        for _ in range(2)
    )
    assert torch.equal(first.points, second.points)


def test_a_sample_is_the_mean_plus_the_deviation_times_the_noise() -> None:
    mu, sigma, log_pi = mixture()
    noise = draw((2, 5, 3), 4, torch.Generator().manual_seed(4), mu)
    still = sample_mixture(mu, sigma, log_pi, (noise[0], 0 * noise[1]), COLD)
    found = sample_mixture(mu, sigma, log_pi, noise, COLD)
    for c in range(2):
        for s, k in enumerate((log_pi[c] + noise[0][c]).argmax(-1).tolist()):
            torch.testing.assert_close(still.points[c, s], mu[c, k])
            torch.testing.assert_close(
                found.points[c, s], mu[c, k] + sigma[c, k] * noise[1][c, s, k]
            )


def test_a_network_starts_at_random_with_a_last_layer_of_zeros() -> None:
    mixtures = Mixtures(9, made(start__points=4, dual__ascents=0, dual__hidden=64))
    g = torch.Generator().manual_seed(0)
    for _ in range(3):
        mixtures.update(torch.randn(8, 9, generator=g), torch.arange(8) % 2, g)
    w1 = mixtures.store["phi.w1"]
    assert float(w1.std()) == pytest.approx(1 / 3, rel=0.1)  # 1 / sqrt(9)
    assert not torch.equal(w1[0], w1[1])
    assert not mixtures.store["phi.w2"].any()
