"""Batch EM at chosen moments: its likelihood, what it leaves alone, what stands in before it."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import Tensor

from ocil.fields import from_mapping
from ocil.mixture import Mixtures, MixtureSettings, moments
from ocil.mixture import mixtures as life
from ocil.mixture.refit import SEEDED_FROM, Refit, fit_batch_em

K, D = 3, 6
GIVEN = {"objective": "task-em", "components": K, "window.queue": 24, "start.points": 12}
PARAMETERS = ("mu", "var", "log_pi")


def points(classes: int, each: int, seed: int = 0, spread: float = 4.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    modes = spread * torch.randn(classes, K, D, generator=g)
    y = torch.arange(classes).repeat_interleave(each)
    k = torch.randint(0, K, y.shape, generator=g)
    sigma = 0.5 + torch.rand(classes, K, D, generator=g)
    return modes[y, k] + sigma[y, k] * torch.randn(len(y), D, generator=g), y


def em(passes: int = 60) -> MixtureSettings:
    return from_mapping(MixtureSettings, GIVEN | {"em.passes": passes})


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """As scikit-learn's: nothing holds the variances."""
    monkeypatch.setattr(moments, "PRIOR", 0.0)
    monkeypatch.setattr(life, "FLOOR", 1e-6)


class Fitted(Mixtures):
    @property
    def refit(self) -> Refit:
        assert isinstance(self.mover, Refit)
        return self.mover


def fresh(passes: int = 60) -> tuple[Fitted, torch.Generator]:
    return Fitted(D, em(passes), dtype=torch.float64), torch.Generator().manual_seed(1)


def parameters(found: Mixtures, c: int) -> dict[str, Tensor]:
    return {name: found.store[name][c].clone() for name in PARAMETERS}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("each", [150, 2 * SEEDED_FROM])
@pytest.mark.parametrize("spread", [4.0, 1.0], ids=["apart", "overlapping"])
@pytest.mark.usefixtures("plain")
def test_the_likelihood_is_that_of_scikit_learn(each: int, spread: float) -> None:
    z, y = points(3, each, spread=spread)
    mixtures, g = fresh(300)
    mixtures.refit.fit(z, y, g)
    for c in range(3):
        own = z[y == c].double()
        peer = GaussianMixture(K, covariance_type="diag", n_init=5, max_iter=300, random_state=0)
        expected = peer.fit(own.numpy()).score(own.numpy())
        mine = float(mixtures.log_density(own)[:, c].mean())
        # half a pseudo-point a component; where modes overlap there are several optima
        assert mine == pytest.approx(expected, abs=2e-3 if spread > 1 else 0.05)
        held, _ = torch.sort(torch.from_numpy(peer.weights_))
        if spread > 1:
            assert torch.allclose(mixtures.log_pi[c].exp().sort().values, held, atol=5e-3)


@pytest.mark.usefixtures("plain")
def test_every_pass_raises_the_likelihood() -> None:
    z, y = points(1, 200, spread=1.0)
    found = []
    for passes in (1, 2, 4, 8, 16, 32):
        mixtures, g = fresh(passes)
        mixtures.refit.fit(z, y, g)
        found.append(float(mixtures.log_density(z)[:, 0].mean()))
    # the weights' half pseudo-points cost a hair at the optimum
    assert all(b > a - 1e-6 for a, b in pairwise(found))
    assert found[-1] > found[0] + 0.05


def test_classes_of_any_size_are_fitted_together_as_if_alone() -> None:
    z, y = points(3, 100)
    kept = torch.cat([torch.arange(100), 100 + torch.arange(40), 200 + torch.arange(70)])
    mixtures, g = fresh()
    mixtures.refit.fit(z[kept], y[kept], g)
    for c, size in enumerate((100, 40, 70)):
        own = z[y == c][:size].double().unsqueeze(0)
        mask = torch.ones(1, size, dtype=torch.bool)
        base = torch.zeros(D, dtype=torch.float64)
        alone, _ = fit_batch_em(own, mask, base, torch.Generator().manual_seed(5), em())
        order = torch.cdist(mixtures.mu[c], alone["mu"][0]).argmin(1)
        assert torch.allclose(mixtures.mu[c], alone["mu"][0, order], atol=1e-6)
        assert torch.allclose(mixtures.store["var"][c], alone["var"][0, order], rtol=1e-4)


@pytest.mark.usefixtures("plain")
def test_a_class_is_one_gaussian_of_its_latest_points_until_it_is_fitted() -> None:
    z, y = points(1, 60)
    mixtures, g = fresh()
    for start in range(0, 60, 6):
        mixtures.update(z[start : start + 6], y[start : start + 6], g)
    assert mixtures.active.tolist() == [[True, False, False]]
    assert mixtures.refit.fitted.tolist() == [0]
    latest = z[-24:].double()  # the queue
    assert torch.allclose(mixtures.mu[0, 0], latest.mean(0))
    assert torch.allclose(mixtures.store["var"][0, 0], latest.var(0, correction=0), rtol=1e-4)
    mixtures.refit.fit(z, y, g)
    assert bool(mixtures.active.all()) and mixtures.refit.fitted.tolist() == [1]


def test_what_is_fitted_does_not_move_and_what_is_not_does() -> None:
    z, y = points(2, 60)
    mixtures, g = fresh()
    mixtures.update(z[::3], y[::3], g)
    mixtures.refit.fit(z[y == 0], y[y == 0], g)
    before = [parameters(mixtures, c) for c in (0, 1)]
    mixtures.update(z + 100, y, g)
    assert same(parameters(mixtures, 0), before[0])
    assert not same(parameters(mixtures, 1), before[1])
    mixtures.refit.fit(z[y == 1], y[y == 1], g)
    assert same(parameters(mixtures, 0), before[0])
    mixtures.refit.fit(z[y == 0] + 100, y[y == 0], g)  # until it is fitted again
    assert torch.allclose(mixtures.mu[0].mean(), before[0]["mu"].mean() + 100, rtol=1e-3)
    assert mixtures.refit.fitted.tolist() == [2, 1]


def test_few_points_make_one_gaussian() -> None:
    z, y = points(2, 40)
    kept = torch.cat([torch.arange(5), torch.arange(40, 80)])
    mixtures, g = fresh()
    mixtures.refit.fit(z[kept], y[kept], g)
    assert mixtures.active.tolist() == [[True, False, False], [True, True, True]]
    assert torch.allclose(mixtures.mu[0, 0], z[:5].double().mean(0))
    mixtures.refit.fit(z[:1], y[:1], g)  # and one point a mixture without a spread of its own
    assert bool(mixtures.var.isfinite().all()) and bool((mixtures.var > 0).all())
    mixtures.refit.fit(z[:0], y[:0], g)
    assert mixtures.refit.fitted.tolist() == [2, 1]


def test_a_saved_state_goes_on_to_the_same_bits() -> None:
    z, y = points(2, 60)
    first, g = fresh()
    first.update(z[::2], y[::2], g)
    first.refit.fit(z[y == 0], y[y == 0], g)
    second, h = fresh()
    second.load_state_dict(first.state_dict(), 2)
    h.set_state(g.get_state())
    for mixtures, draw in ((first, g), (second, h)):
        mixtures.update(z[1::2], y[1::2], draw)
        mixtures.refit.fit(z, y, draw)
    state, other = first.state_dict(), second.state_dict()
    assert list(state) == list(other) and same(state, other)
    assert not np.isnan(state["mu"].numpy()).any()


def test_before_its_fit_a_class_is_one_gaussian_of_full_weight():
    mixtures = Mixtures(2, MixtureSettings(components=3, objective="task-em"))
    draw = torch.Generator().manual_seed(0)
    mixtures.update(torch.randn(5, 2, generator=draw), torch.zeros(5, dtype=torch.long), draw)
    assert mixtures.log_pi[0].tolist() == [0.0, -math.inf, -math.inf]
