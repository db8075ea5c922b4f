"""Mixtures: life of a class, independence, growth, state, bad input, plain-loop oracle."""

from typing import get_args

import numpy as np
import pytest
import torch

from ocil.errors import OcilError
from ocil.fields import from_mapping
from ocil.mixture import Mixtures, MixtureSettings, kmeans, window
from ocil.mixture.mixtures import Objective

SMALL = {"components": 3, "window.queue": 24, "window.points": 8, "start.points": 12}


def small(**changes: object) -> MixtureSettings:
    """With "__" for the dot of a group's option."""
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return from_mapping(MixtureSettings, SMALL | given)


def stream(seed: int, points: int, classes: int = 3, d: int = 5):
    g = torch.Generator().manual_seed(seed)
    modes = 8 * torch.randn(classes, 3, d, generator=g)
    y = torch.randint(0, classes, (points,), generator=g)
    k = torch.randint(0, 3, (points,), generator=g)
    return modes, modes[y, k] + torch.randn(points, d, generator=g), y


def learn(settings: MixtureSettings, seed: int = 0, points: int = 600, batch: int = 10, **kw):
    modes, z, y = stream(seed, points)
    mixtures, g = Mixtures(5, settings, **kw), torch.Generator().manual_seed(9)
    for start in range(0, points, batch):
        mixtures.update(z[start : start + batch], y[start : start + batch], g)
    return modes, mixtures


def worst_gap(modes: torch.Tensor, mixtures: Mixtures) -> float:
    """Largest distance from a true mode to the nearest centroid of its class."""
    return float(torch.cdist(modes.to(mixtures.mu), mixtures.mu).amin(-1).max())


@pytest.mark.parametrize("objective", ["sinkhorn", "em", "nll"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_modes_are_found(objective: str, dtype: torch.dtype) -> None:
    modes, mixtures = learn(small(objective=objective), dtype=dtype)
    assert worst_gap(modes, mixtures) < (1.5 if objective == "nll" else 0.9)  # modes: 25 apart
    assert mixtures.mu.dtype == dtype and bool(mixtures.var.isfinite().all())
    assert float((mixtures.var.mean() - 1).abs()) < 0.25


@pytest.mark.parametrize("objective", get_args(Objective))
def test_every_objective_runs_is_finite_and_repeats(objective: str) -> None:
    points = {"dual": {"window__points": None, "dual__hidden": 8}}
    points |= {name: {"window__points": 16} for name in ("batch-em", "task-em", "refit-em")}
    settings = small(objective=objective, **points.get(objective, {}))
    first, second = (learn(settings, points=120)[1].state_dict() for _ in range(2))
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    assert bool(first["mu"].isfinite().all()) and bool((first["var"] > 0).all())
    assert torch.allclose(first["log_pi"].exp().sum(-1), torch.ones(3))


def test_peers_and_stepwise_find_the_modes() -> None:
    for name in ("stepwise-em", "batch-em"):
        settings = small(objective=name, window__points=16)
        modes, mixtures = learn(settings)
        assert worst_gap(modes, mixtures) < 2.0


def test_a_young_class_is_one_gaussian() -> None:
    mixtures, g = Mixtures(5, small()), torch.Generator().manual_seed(0)
    z = torch.randn(11, 5, generator=g) + 3
    mixtures.update(z, torch.full((11,), 2), g)
    assert mixtures.active.tolist() == [[False] * 3, [False] * 3, [True, False, False]]
    assert torch.allclose(mixtures.mu[2, 0], z.mean(0), atol=1e-5)
    distances = mixtures.class_distances(z)
    assert bool(distances[:, :2].isinf().all()) and bool(distances[:, 2].isfinite().all())
    mixtures.update(z[:1] + 1, torch.tensor([2]), g)
    assert bool(mixtures.active[2].all())


def test_one_point_gives_finite_distances() -> None:
    mixtures, g = Mixtures(5, small()), torch.Generator().manual_seed(0)
    mixtures.update(torch.ones(1, 5), torch.tensor([0]), g)
    assert float(mixtures.class_distances(torch.ones(1, 5))) == pytest.approx(0, abs=1e-4)
    assert bool(mixtures.log_density(torch.zeros(1, 5)).isfinite().all())


def test_classes_in_the_batch_do_not_depend_on_classes_known() -> None:
    """Moving classes 0 and 1 gives the same numbers with 2 or with 60 classes known."""
    results = []
    for known in (2, 60):
        mixtures = Mixtures(5, small())
        g = torch.Generator().manual_seed(1)
        _, z, y = stream(3, 200, classes=2)
        for start in range(0, 200, 10):
            mixtures.update(z[start : start + 10], y[start : start + 10], g)
        base = mixtures.pooled_variance.clone()
        for c in range(2, known):
            mixtures.update(torch.randn(3, 5, generator=g), torch.full((3,), c), g)
        mixtures.pooled_variance.copy_(base)
        mixtures.update(z[:10], y[:10], g)
        results.append([mixtures.store[n][:2].clone() for n in ("mu", "var", "log_pi")])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_neighbouring_classes_move_as_classes_apart_do() -> None:
    """Classes 0, 1, 2 are read as one slice of the store, 0, 2, 4 row by row."""
    draw = torch.Generator().manual_seed(0)
    near, apart = Mixtures(5), Mixtures(5)
    streams = [torch.Generator().manual_seed(1) for _ in range(2)]
    for _ in range(12):
        y = torch.arange(3).repeat_interleave(7)
        z = torch.randn(len(y), 5, generator=draw) + y.unsqueeze(1)
        near.update(z, y, streams[0])
        apart.update(z, 2 * y, streams[1])
    for name, column in near.store.columns.items():
        assert torch.equal(column[:3], apart.store.columns[name][:6:2]), name


def test_a_large_batch_equals_queuefuls_in_turn() -> None:
    _, z, _ = stream(4, 60, classes=1)
    y = torch.zeros(60, dtype=torch.long)
    whole, parts = Mixtures(5, small()), Mixtures(5, small())
    g1, g2 = (torch.Generator().manual_seed(2) for _ in range(2))
    whole.update(z, y, g1)
    parts.pooled_variance.copy_((z - z.mean(0)).square().mean().expand(5))
    parts.store.grow(1)
    for start in (0, 24, 48):
        parts.update(z[start : start + 24], y[start : start + 24], g2)
    assert torch.allclose(whole.mu, parts.mu, atol=1e-5) and int(whole.store["count"]) == 60


def test_every_point_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without drift test and with room for all points the masses add up to the points seen."""
    monkeypatch.setattr(window, "HORIZON", 1e9)
    monkeypatch.setattr(window, "DRIFT", 1e9)
    settings = small(start__again=None)
    _, mixtures = learn(settings, points=400)
    first = mixtures.store["first"]
    assert torch.allclose(mixtures.store["old_mass"].sum(-1), first.float(), rtol=1e-4)


def test_state_round_trip_is_exact_and_learning_goes_on_alike() -> None:
    for objective in ("sinkhorn", "dual"):
        settings = small(objective=objective)
        _, mixtures = learn(settings, points=200)
        other = Mixtures(5, settings)
        other.load_state_dict(mixtures.state_dict(), 3)
        _, z, y = stream(5, 30)
        for each in (mixtures, other):
            each.update(z, y, torch.Generator().manual_seed(3))
        for name, value in mixtures.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name


def test_state_of_another_shape_is_refused() -> None:
    _, mixtures = learn(small(), points=50)
    state = mixtures.state_dict()
    with pytest.raises(OcilError, match="dimensions"):
        Mixtures(6, small()).load_state_dict(state, 3)
    with pytest.raises(OcilError, match="'mu'"):
        Mixtures(5, small(components=2)).load_state_dict(state, 3)
    with pytest.raises(OcilError, match=r"'d\.mu\.m'"):
        Mixtures(5, small(objective="dual")).load_state_dict(state, 3)


def test_reading_agrees_with_the_formulas() -> None:
    _, mixtures = learn(small(shrinkage=0.3))
    _, z, y = stream(6, 20)
    var, mu = mixtures.var, mixtures.mu
    plain = ((z[:, None, None] - mu).square() / var).sum(-1)
    assert torch.allclose(mixtures.mahalanobis(z), plain, rtol=1e-3)
    euclidean = (z[:, None, None] - mu).square().sum(-1)
    assert torch.allclose(mixtures.euclidean(z), euclidean, rtol=1e-3)
    mean, spread = mixtures.merged()
    one = ((z[:, None] - mean).square() / spread).sum(-1)
    assert torch.allclose(mixtures.mahalanobis(z, merged=True)[..., 0], one, rtol=1e-3)
    own = mixtures.own_distances(z, y)
    raw = ((z[:, None] - mu[y]).square() / mixtures.store["var"][y]).sum(-1)
    assert torch.allclose(own, raw, rtol=1e-3)
    assert mixtures.nbytes > mixtures.mu.nbytes


def test_samples_follow_the_class() -> None:
    _, mixtures = learn(small())
    points = mixtures.sample(1, 4000, torch.Generator().manual_seed(4))
    mean, var = mixtures.merged()
    assert torch.allclose(points.mean(0), mean[1], atol=0.6)
    assert torch.allclose(points.var(0), var[1], rtol=0.1)


def test_bad_input_is_refused_in_a_sentence() -> None:
    mixtures, g = Mixtures(5, small()), torch.Generator()
    with pytest.raises(OcilError, match=r"give \(n, 5\)"):
        mixtures.update(torch.zeros(3, 4), torch.zeros(3, dtype=torch.long), g)
    with pytest.raises(OcilError, match="label is -1"):
        mixtures.update(torch.zeros(1, 5), torch.tensor([-1]), g)
    with pytest.raises(OcilError, match="Class 0 has no mixture"):
        mixtures.sample(0, 1, g)
    with pytest.raises(OcilError, match="Did you mean 'sinkhorn'"):
        MixtureSettings(objective="sinkhron")
    with pytest.raises(OcilError, match=r"start\.points is 2"):
        small(start__points=2)
    with pytest.raises(OcilError, match=r"window\.points is 25"):
        small(window__points=25)
    mixtures.update(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long), g)
    assert len(mixtures) == 0


def test_equal_points_do_not_break_it() -> None:
    mixtures, g = Mixtures(5, small()), torch.Generator().manual_seed(0)
    for _ in range(8):
        mixtures.update(torch.ones(10, 5), torch.zeros(10, dtype=torch.long), g)
    assert bool(mixtures.mu.isfinite().all()) and bool((mixtures.var > 0).all())
    assert torch.allclose(mixtures.mu[0], torch.ones(3, 5), atol=1e-3)


def test_a_first_batch_of_two_points_gives_their_spread_wherever_they_lie() -> None:
    mixtures = Mixtures(2)
    z = torch.tensor([[100.0, 200.0], [102.0, 204.0]])  # 1 and 2 from their mean
    mixtures.update(z, torch.tensor([0, 1]), torch.Generator())
    assert mixtures.pooled_variance.tolist() == pytest.approx([2.5, 2.5])


ONE = torch.zeros(1, dtype=torch.int64)


def fed(points: torch.Tensor, **changes: object) -> Mixtures:
    given = {name.replace("__", "."): value for name, value in changes.items()}
    usual = {"components": 1, "start.points": 4, "window.queue": 8}
    s = from_mapping(MixtureSettings, usual | given)
    mixtures, draw = Mixtures(points.shape[1], s), torch.Generator().manual_seed(0)
    for point in points:
        mixtures.update(point[None], ONE, draw)
    return mixtures


def test_slots_older_than_the_window_are_told_from_those_in_it() -> None:
    mixtures = fed(torch.zeros(4, 1), start__points=2, window__queue=4, window__points=2)
    # seven points: slots hold numbers 4, 5, 6, 3; those before number 5 are settled
    found = mixtures._settled(np.array([7]), np.array([5]))
    assert found.tolist() == [[True, False, False, True]]
    # three points: slot 3 holds none
    assert mixtures._settled(np.array([3]), np.array([2])).tolist() == [[True, True, False, False]]


def test_the_running_variance_follows_the_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "HORIZON", 0.0)
    draw = torch.Generator().manual_seed(1)
    narrow = torch.cat(
        [torch.randn(40, 3, generator=draw), 0.01 * torch.randn(400, 3, generator=draw)]
    )
    mixtures = fed(narrow, window__points=4)
    assert float(mixtures.pooled_variance.mean()) < 0.05  # from about 1 at the first points


def test_every_point_counts_once_in_a_steady_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "DRIFT", 1e9)
    draw = torch.Generator().manual_seed(2)
    z = torch.randn(60, 2, generator=draw)
    mixtures = fed(z, window__points=4)
    torch.testing.assert_close(mixtures.mu[0, 0], z.mean(0), rtol=1e-3, atol=1e-3)


def test_a_queue_that_still_fills_is_clustered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded from one mode; the second mode comes while the queue has room."""
    monkeypatch.setattr(kmeans, "MARGIN", 1.0)
    draw = torch.Generator().manual_seed(3)
    z = 0.1 * torch.randn(32, 2, generator=draw)
    z[8:16] += 0.35  # not far enough to count as clearly better
    found = fed(z[:16], components=2, start__points=8, window__queue=32, window__points=4)
    gap = (found.mu[0, 0] - found.mu[0, 1]).norm()
    assert float(gap) > 0.35
    assert found.store.host("seeded").tolist() == [1]
