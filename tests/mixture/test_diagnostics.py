"""Diagnostics: closed forms, unseen classes, JSON-ready numbers."""

import json

import pytest
import torch

from ocil.mixture import Mixtures, MixtureSettings, diagnostics


def test_spread_and_floor_closed_forms() -> None:
    mu = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [9.0, 9.0]]])
    var = torch.tensor([[[0.5, 0.5], [0.5, 0.5], [7.0, 7.0]]])
    active = torch.tensor([[True, True, False]])
    assert diagnostics.spread(mu, var, active).tolist() == [5.0]
    var[0, 0, 0] = 1e-4
    for least, share in ((1e-4, 0.25), (0.9e-4, 0.0), (0.5, 1.0)):
        assert diagnostics.at_floor(var, active, torch.tensor([least])).tolist() == [share]


@pytest.mark.parametrize("objective", ["sinkhorn", "em", "dual", "nll"])
def test_variances_at_the_floor_are_those_that_were_held_there(objective: str) -> None:
    """Whatever an objective takes as its floor: those held by it are equal, the others are not."""
    settings = MixtureSettings(
        components=2, objective=objective, floor=0.2, rate_sigma=0.2, prior=0
    )
    mixtures, g = Mixtures(6, settings), torch.Generator().manual_seed(0)
    scale = torch.tensor([3.0, 1.0, 1.0, 0.1, 0.03, 0.01])
    for _ in range(60):
        y = torch.arange(16) % 2
        mixtures.update(torch.randn(16, 6, generator=g) * scale * (1 + 9 * y[:, None]), y, g)
    var = mixtures.store["var"]
    held = [int((v <= v.min() * 1.00005).sum()) / v.numel() for v in var]
    assert all(share >= 0.25 for share in held)  # a test that finds none would say nothing
    assert diagnostics.describe(mixtures)["at_floor"] == pytest.approx(held)


def test_drift_of_a_shift_is_its_length() -> None:
    g = torch.Generator().manual_seed(0)
    mu = 10 * torch.randn(2, 3, 4, generator=g, dtype=torch.float64)
    var = torch.ones_like(mu)
    log_pi = torch.full((2, 3), 1 / 3, dtype=torch.float64).log()
    log_pi[1] = -torch.inf
    moved = diagnostics.drift((mu, var, log_pi), (mu + 0.5, var, log_pi.clone()))
    assert abs(float(moved[0]) - 1.0) < 0.01
    assert bool(moved[1].isnan())


def test_describe_is_json_with_none_for_unseen_classes() -> None:
    mixtures, g = Mixtures(3), torch.Generator().manual_seed(0)
    mixtures.update(torch.randn(40, 3, generator=g), torch.ones(40, dtype=torch.long), g)
    numbers = json.loads(json.dumps(diagnostics.describe(mixtures), allow_nan=False))
    assert numbers["spread"][0] is None
    assert numbers["spread"][1] > 0
    assert 0 < numbers["weight_min"][1] <= numbers["weight_max"][1] < 1
    assert numbers["sigma_25"][1] <= numbers["sigma_50"][1] <= numbers["sigma_75"][1]
