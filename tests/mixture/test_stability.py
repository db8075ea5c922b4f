"""Disjoint starts: mixtures that begin away from the data, or are left behind by it, come back."""

import pytest
import torch

from ocil.mixture import Mixtures, MixtureSettings, window
from ocil.mixture.kmeans import StartSettings


def modes_of(seed: int, d: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return 1.5 * d**0.5 * torch.nn.functional.normalize(torch.randn(4, d, generator=g), dim=1)


def feed(mixtures: Mixtures, modes: torch.Tensor, points: int, seed: int, n: int = 6) -> None:
    g = torch.Generator().manual_seed(seed)
    weights = torch.tensor([0.4, 0.3, 0.2, 0.1])
    for _ in range(points // n):
        k = torch.multinomial(weights, n, replacement=True, generator=g)
        z = modes[k] + torch.randn(n, modes.shape[1], generator=g)
        mixtures.update(z, torch.zeros(n, dtype=torch.long), g)


def error(mixtures: Mixtures, modes: torch.Tensor) -> float:
    """Mean distance of the modes to their nearest centroids in units of |sigma|, one to one."""
    distance = torch.cdist(modes, mixtures.mu[0])
    assert len(set(distance.argmin(1).tolist())) == 4, "two modes share a centroid"
    return float(distance.amin(1).mean()) / modes.shape[1] ** 0.5


@pytest.mark.parametrize("d", [16, 128])
@pytest.mark.parametrize("seed", [100, 101, 102])
def test_recovers_from_a_jump_to_a_disjoint_place(d: int, seed: int) -> None:
    """All modes move by 5 |sigma| to new directions: no point is near its old component."""
    mixtures = Mixtures(d)
    before, after = modes_of(seed, d), modes_of(seed + 50, d) + 5.0
    feed(mixtures, before, 600, seed)
    assert error(mixtures, before) < 0.15
    feed(mixtures, after, 900, seed + 1)
    assert error(mixtures, after) < 0.2


@pytest.mark.parametrize("kind", ["far", "collapsed"])
def test_recovers_from_a_bad_start(kind: str) -> None:
    """Components set far away, or all at one place, with a tiny variance."""
    d, modes = 64, modes_of(103, 64)
    mixtures = Mixtures(d)
    feed(mixtures, modes, 60, 0)
    mixtures.store["mu"][0] = 40.0 if kind == "far" else modes[0]
    mixtures.store["var"][0] = 1e-2
    feed(mixtures, modes, 900, 1)
    assert error(mixtures, modes) < 0.15
    assert float(mixtures.var.mean()) == pytest.approx(1.0, abs=0.15)


def test_without_clustering_again_the_jump_is_not_survived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: this is what the re-seeding is for."""
    monkeypatch.setattr(window, "DRIFT", 1e9)
    mixtures = Mixtures(16, MixtureSettings(start=StartSettings(again=None)))
    before, after = modes_of(100, 16), modes_of(150, 16) + 5.0
    feed(mixtures, before, 600, 100)
    feed(mixtures, after, 900, 101)
    distance = torch.cdist(after, mixtures.mu[0]).amin(1).mean() / 4
    assert float(distance) > 0.3
