"""Diagnostics: closed forms, unseen classes, JSON-ready numbers."""

import json

import torch

from ocil.mixture import Mixtures, diagnostics


def test_spread_and_floor_closed_forms() -> None:
    mu = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [9.0, 9.0]]])
    var = torch.tensor([[[0.5, 0.5], [0.5, 0.5], [7.0, 7.0]]])
    active = torch.tensor([[True, True, False]])
    assert diagnostics.spread(mu, var, active).tolist() == [5.0]
    var[0, 0, 0] = 1e-4
    assert diagnostics.at_floor(var, active, 1e-3).tolist() == [0.25]


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
