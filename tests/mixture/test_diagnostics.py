"""Diagnostics: closed forms, unseen classes, JSON-ready numbers."""

import json
import math

import pytest
import torch

from ocil.fields import from_mapping
from ocil.mixture import Mixtures, MixtureSettings, diagnostics, moments
from ocil.mixture import mixtures as life
from ocil.mixture.diagnostics import Diagnostics
from ocil.mixture.kmeans import StartSettings


def test_spread_and_floor_closed_forms() -> None:
    mu = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [9.0, 9.0]]])
    var = torch.tensor([[[0.5, 0.5], [0.5, 0.5], [7.0, 7.0]]])
    active = torch.tensor([[True, True, False]])
    assert diagnostics.spread(mu, var, active).tolist() == [5.0]
    var[0, 0, 0] = 1e-4
    for least, share in ((1e-4, 0.25), (0.9e-4, 0.0), (0.5, 1.0)):
        assert diagnostics.at_floor(var, active, torch.tensor([least])).tolist() == [share]


@pytest.mark.parametrize("objective", ["sinkhorn", "em", "dual", "nll"])
def test_variances_at_the_floor_are_those_that_were_held_there(
    objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an objective takes as its floor: those held by it are equal, the others are not."""
    monkeypatch.setattr(life, "FLOOR", 0.2)
    monkeypatch.setattr(moments, "PRIOR", 0.0)
    held = {"dual.floor": 0.2, "dual.rate_sigma": 0.2} if objective in life.GRADIENT else {}
    given = {"components": 2, "objective": objective, **held}
    settings = from_mapping(MixtureSettings, given)
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


def mixtures(classes: int = 2) -> tuple[Mixtures, torch.Tensor, torch.Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(1)
    known = Mixtures(6, MixtureSettings(components=2, start=StartSettings(points=8)))
    z, y = torch.randn(60, 6, generator=generator), torch.arange(60) % classes
    z += 4 * y[:, None] + 2 * (torch.arange(60)[:, None] % 4 > 1)
    known.update(z, y, generator)
    return known, z, y, generator


def test_own_class_distances_against_a_loop():
    known, z, y, _ = mixtures()
    several, single = [], []
    for point, label in zip(z, y, strict=True):
        mu, var = known.mu[label], known.store["var"][label]
        pi = known.log_pi[label].exp()
        several.append(
            min(float(((point - m) ** 2 / v).sum()) for m, v in zip(mu, var, strict=True)) / 6
        )
        mean = sum(p * m for p, m in zip(pi, mu, strict=True))
        spread = sum(p * (v + (m - mean) ** 2) for p, m, v in zip(pi, mu, var, strict=True))
        single.append(float(((point - mean) ** 2 / spread).sum()) / 6)
    found = known.own_class_distances(z, y).tolist()
    assert found == pytest.approx([sum(several) / 60, sum(single) / 60], rel=1e-4)


def test_points_of_unknown_classes_are_left_out():
    known, z, y, _ = mixtures()
    expected = known.own_class_distances(z[:10], y[:10])
    more = torch.cat([y[:10], torch.full((5,), 9)])
    assert torch.equal(known.own_class_distances(z[:15], more), expected)
    assert known.own_class_distances(z[:2], torch.tensor([7, 8])).isnan().all()
    assert Mixtures(6).own_class_distances(z, y).isnan().all()


def test_arrivals_are_averaged_and_counted_anew_when_classes_come():
    known, z, y, generator = mixtures()
    told_by = Diagnostics(known)
    first, second = known.own_class_distances(z[:5], y[:5]), known.own_class_distances(z, y)
    told_by.arrive(z[:5], y[:5])
    told_by.arrive(z, y)
    told_by.arrive(z[:1], torch.tensor([9]))  # a class without a mixture counts for nothing
    told = told_by.describe({"test": (z, y)})["own_class_distance"]
    assert told["arrival"]["components"] == pytest.approx(float(first[0] + second[0]) / 2, rel=1e-4)
    assert told["test"]["single"] == pytest.approx(float(second[1]), rel=1e-4)
    told_by.new_classes(3)
    known.update(z + 1, y, generator)
    told = told_by.describe({})
    assert told["own_class_distance"]["arrival"] == {"components": None, "single": None}
    assert all(not math.isnan(d) and d > 0.1 for d in told["drift"])


def test_the_state_holds_all_of_it():
    known, z, y, _ = mixtures()
    told_by, other = Diagnostics(known), Diagnostics(known)
    told_by.new_classes(3)
    told_by.arrive(z, y)
    other.load_state_dict(told_by.state_dict(), 3)
    assert other.describe({"test": (z, y)}) == told_by.describe({"test": (z, y)})


def test_with_many_classes_not_every_new_one_costs_a_copy_of_all():
    known, z, _, generator = mixtures()
    known.update(z.repeat(4, 1)[:200], torch.arange(200), generator)
    told_by, copies = Diagnostics(known), []
    for classes in range(200, 211):
        before = told_by.before
        told_by.new_classes(classes)
        copies.append(told_by.before is not before)
    assert sum(copies) == 2


def test_the_quartiles_of_sigma_are_of_each_class_over_its_components() -> None:
    mixtures = Mixtures(2, MixtureSettings(components=2), dtype=torch.float64)
    mixtures.store.grow(3)
    sigma = torch.tensor([[1.0, 2, 3, 4], [10, 20, 40, 50], [5, 5, 5, 5]]).double()
    log_pi = torch.full((3, 2), 0.5).double().log()
    mixtures.store.put(torch.arange(3), {"var": sigma.view(3, 2, 2).square(), "log_pi": log_pi})
    numbers = diagnostics.describe(mixtures)
    assert numbers["sigma_25"] == pytest.approx([1.75, 17.5, 5.0])
    assert numbers["sigma_50"] == pytest.approx([2.5, 30.0, 5.0])
    assert numbers["sigma_75"] == pytest.approx([3.25, 42.5, 5.0])
