"""Algorithms 1 and 2 of the paper, written down once more from its text, in float64.

Nothing of the package is used on the side of the reference. Where the package differs from the
letter of an equation, a test says so and by how much.
"""

import math

import pytest
import torch

from ocil import losses
from ocil.fields import from_mapping
from ocil.losses.preservation import one_of_each
from ocil.mixture import Mixtures, MixtureSettings, objectives

K, D, N, S, TAU = 3, 5, 6, 4, 0.7


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=draw(seed), dtype=torch.float64)


@pytest.fixture
def mixture() -> list[torch.Tensor]:
    """mu (K, d), sigma (K, d), pi (K,)."""
    mu, sigma = random(K, D, seed=1), random(K, D, seed=2).exp()
    return [mu, sigma, torch.softmax(random(K, seed=3), 0)]


def sampled(mu, sigma, pi, gumbel, noise) -> list[torch.Tensor]:
    """Equations 6 and 7 with Gumbel-Softmax: z~_s = sum_k l_k (mu_k + eps_k sigma_k)."""
    found = []
    for s in range(S):
        weight = [torch.exp((torch.log(pi[k]) + gumbel[s, k]) / TAU) for k in range(K)]
        total = sum(weight)
        found.append(sum(weight[k] / total * (mu[k] + noise[s, k] * sigma[k]) for k in range(K)))
    return found


def phi(z, network) -> torch.Tensor:
    w1, b1, w2 = network
    return torch.log(1 + torch.exp(z @ w1 + b1)) @ w2


def dual(z, samples, network, eps) -> torch.Tensor:
    """Inside Equation 9 for d(z, z~) = |z - z~|^2: mean_j phi(z_j) + mean_s phi~(z~_s)."""
    total = sum(phi(point, network) for point in z) / len(z)
    for sample in samples:
        inner = [
            torch.exp((-((point - sample) ** 2).sum() + phi(point, network)) / eps) for point in z
        ]
        total = total - eps * torch.log(sum(inner) / len(z)) / len(samples)
    return total


@pytest.mark.parametrize("points", [N, 1])
def test_the_dual_and_its_gradients_are_equation_9(mixture, points):
    """Ours is per dimension: phi, eps and J are those of the paper divided by d."""
    z, eps = random(points, D, seed=4), 0.9
    gumbel, noise = random(S, K, seed=5), random(S, K, D, seed=6)
    network = [random(D, 7, seed=7), random(7, seed=8), random(7, seed=9)]
    leaves = [part.clone().requires_grad_() for part in mixture]
    theirs = dual(z, sampled(*leaves, gumbel, noise), network, eps)
    wanted = torch.autograd.grad(theirs, leaves)

    settings = {"objective": "dual", "dual.cost": "euclidean", "dual.eps": eps / D}
    s = from_mapping(MixtureSettings, settings | {"dual.samples": S}).dual
    ours = [part.clone().requires_grad_() for part in mixture]
    mu, sigma, pi = (part.unsqueeze(0) for part in ours)
    sample = objectives.sample_mixture(mu, sigma, pi.log(), (gumbel[None], noise[None]), TAU)
    scaled = [layer.unsqueeze(0) for layer in (network[0], network[1], network[2] / D)]
    mask = torch.ones(1, points, dtype=torch.bool)
    value = D * objectives.dual_loss(sample, z.unsqueeze(0), mask, scaled, s).sum()
    assert float(value.detach()) == pytest.approx(float(theirs.detach()), abs=1e-9)
    for mine, other in zip(torch.autograd.grad(value, ours), wanted, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-9, rtol=0)
    assert wanted[0].abs().sum() > 0.1  # also of a single point, where phi cancels


def test_a_class_with_one_point_moves():
    """Algorithm 2 is for every class that is present."""
    given = {"objective": "dual", "components": 2, "start.points": 4, "window.points": None}
    moved = {}
    for least in (1, 2):
        settings = from_mapping(MixtureSettings, given | {"dual.least_points": least})
        mixtures, g = Mixtures(D, settings, dtype=torch.float64), draw()
        mixtures.update(random(8, D, seed=3), torch.zeros(8, dtype=torch.int64), g)
        before = mixtures.mu.clone()
        mixtures.update(random(1, D, seed=4), torch.zeros(1, dtype=torch.int64), g)
        moved[least] = bool((mixtures.mu != before).any())
    assert moved == {1: True, 2: False}


def test_dynamic_preservation_is_equation_10():
    """One sample of every class, the own one as well; the minus sign is what its words ask for."""
    z, mu, keys = random(9, D, seed=1), random(4, K, D, seed=2), random(9, 9, seed=3)
    y, active = torch.tensor([0, 1, 1, 2, 0, 2, 2, 1, 0]), torch.ones(4, K, dtype=torch.bool)
    chosen = one_of_each(keys, y, 4)
    for form in ("printed", "printed-others"):
        by_class: dict[int, list[float]] = {}
        for i, c in enumerate(y.tolist()):
            cen = [sum(math.exp(float(z[i] @ mu[o, k]) / TAU) for k in range(K)) for o in range(4)]
            below = sum(cen)
            for other in {0, 1, 2} - ({c} if form == "printed-others" else set()):
                members = [j for j in range(9) if y[j] == other and j != i]
                picked = max(members, key=lambda j: float(keys[i, j]))
                assert chosen[i, picked]
                below += math.exp(float(z[i] @ z[picked]) / TAU)
            by_class.setdefault(c, []).append(-math.log(cen[c] / below))
        expected = sum(sum(v) / len(v) for v in by_class.values()) / len(by_class)
        found = losses.preservation.dynamic_preservation(z, y, mu, active, TAU, form, keys)
        assert float(found) == pytest.approx(expected, abs=1e-9)


def test_each_sample_of_a_class_is_drawn_as_often():
    y, count = torch.tensor([0, 1, 1, 1, 0]), torch.zeros(5)
    for seed in range(600):
        count += one_of_each(torch.rand(5, 5, generator=draw(seed)), y, 2)[0]
    assert count[0] == 0 and count[4] == 600
    assert (count[1:4] - 200).abs().max() < 50


def test_the_class_of_the_nearest_gaussian_answers():
    """argmin_c min_k d_MH(z, N(mu_kc, diag sigma_kc^2)), without a determinant."""
    mixtures = Mixtures(D, MixtureSettings(components=K), dtype=torch.float64)
    y = torch.arange(4).repeat_interleave(30)
    mixtures.update(random(120, D, seed=1) + y[:, None], y, draw())
    z = random(7, D, seed=2)
    for i, row in enumerate(mixtures.class_distances(z).tolist()):
        for c, found in enumerate(row):
            wanted = min(
                sum(
                    float((z[i, d] - mixtures.mu[c, k, d]) ** 2 / mixtures.var[c, k, d])
                    for d in range(D)
                )
                for k in range(K)
            )
            assert found == pytest.approx(wanted, rel=1e-9)
