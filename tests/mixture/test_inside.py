"""What the record tells of the mixtures, against loops over points."""

from __future__ import annotations

import math

import pytest
import torch

from ocil.mixture import Mixtures, MixtureSettings
from ocil.mixture.inside import Inside, own_class_distances


def mixtures(classes: int = 2) -> tuple[Mixtures, torch.Tensor, torch.Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(1)
    known = Mixtures(6, MixtureSettings(components=2, seed_points=8))
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
    found = own_class_distances(known, z, y).tolist()
    assert found == pytest.approx([sum(several) / 60, sum(single) / 60], rel=1e-4)


def test_points_of_unknown_classes_are_left_out():
    known, z, y, _ = mixtures()
    expected = own_class_distances(known, z[:10], y[:10])
    more = torch.cat([y[:10], torch.full((5,), 9)])
    assert torch.equal(own_class_distances(known, z[:15], more), expected)
    assert own_class_distances(known, z[:2], torch.tensor([7, 8])).isnan().all()
    assert own_class_distances(Mixtures(6), z, y).isnan().all()


def test_arrivals_are_averaged_and_counted_anew_when_classes_come():
    known, z, y, generator = mixtures()
    inside = Inside(known)
    first, second = own_class_distances(known, z[:5], y[:5]), own_class_distances(known, z, y)
    inside.arrive(z[:5], y[:5])
    inside.arrive(z, y)
    inside.arrive(z[:1], torch.tensor([9]))  # a class without a mixture counts for nothing
    told = inside.describe({"test": (z, y)})["own_class_distance"]
    assert told["arrival"]["components"] == pytest.approx(float(first[0] + second[0]) / 2, rel=1e-4)
    assert told["test"]["single"] == pytest.approx(float(second[1]), rel=1e-4)
    inside.new_classes(3)
    known.update(z + 1, y, generator)
    told = inside.describe({})
    assert told["own_class_distance"]["arrival"] == {"components": None, "single": None}
    assert all(not math.isnan(d) and d > 0.1 for d in told["drift"])


def test_the_state_holds_all_of_it():
    known, z, y, _ = mixtures()
    inside, other = Inside(known), Inside(known)
    inside.new_classes(3)
    inside.arrive(z, y)
    other.load_state_dict(inside.state_dict())
    assert other.describe({"test": (z, y)}) == inside.describe({"test": (z, y)})


def test_with_many_classes_not_every_new_one_costs_a_copy_of_all():
    known, z, _, generator = mixtures()
    known.update(z.repeat(4, 1)[:200], torch.arange(200), generator)
    inside, copies = Inside(known), []
    for classes in range(200, 211):
        before = inside.before
        inside.new_classes(classes)
        copies.append(inside.before is not before)
    assert sum(copies) == 2
