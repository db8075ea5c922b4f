"""Settings of the mixtures that cannot be meant are refused, and the networks start as they say."""

from __future__ import annotations

import pytest
import torch

from ocil.errors import OcilError
from ocil.mixture import Mixtures, MixtureSettings
from ocil.mixture.moments import least_variance

TOO_LOW = {
    "components": 0, "queue": 0, "window": -1, "drift": -1, "memory": -1, "sinkhorn_steps": -1,
    "passes": 0, "restarts": 0, "prior": -1, "floor": -1, "samples": -1, "potential_steps": -1,
    "steps": 0, "hidden": 0, "shrinkage": -0.1, "relax": -0.1, "reseed_every": -1, "eps": 0.0,
    "temperature": 0.0, "seed_points": 0,
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), TOO_LOW.items())
def test_a_value_too_low_is_refused_by_its_name(name: str, value: float) -> None:
    with pytest.raises(OcilError, match=f"^{name} is {value}; give at least"):
        MixtureSettings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", ["objective", "average", "seeding", "cost", "pairing", "optimiser"]
)
def test_an_unknown_choice_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(OcilError, match=f"^{name} is 'other'; choose one of"):
        MixtureSettings(**{name: "other"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["relax", "shrinkage"])
def test_a_share_above_one_is_refused(name: str) -> None:
    with pytest.raises(OcilError, match=f"^{name} is 1.5; give a share"):
        MixtureSettings(**{name: 1.5})  # type: ignore[arg-type]
    assert getattr(MixtureSettings(**{name: 1.0}), name) == 1.0  # type: ignore[arg-type]


def test_a_network_starts_at_random_with_a_last_layer_of_zeros() -> None:
    s = MixtureSettings(objective="dual", components=2, seed_points=4, potential_steps=0)
    mixtures, draw = Mixtures(9, s), torch.Generator().manual_seed(0)
    for _ in range(3):
        mixtures.update(torch.randn(8, 9, generator=draw), torch.arange(8) % 2, draw)
    w1 = mixtures.store["phi.w1"]
    assert float(w1.std()) == pytest.approx(1 / 3, rel=0.1)  # 1 / sqrt(9)
    assert not torch.equal(w1[0], w1[1])
    assert not mixtures.store["phi.w2"].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_least_variance_has_a_finite_reciprocal(dtype: torch.dtype) -> None:
    least = torch.tensor(least_variance(dtype), dtype=dtype)
    assert least > 0 and (least.reciprocal() * 1e6).isfinite()
