"""Settings of the mixtures that cannot be meant are refused."""

from __future__ import annotations

from typing import Any

import pytest

from ocil.errors import OcilError
from ocil.fields import fields_of, from_mapping
from ocil.mixture import MixtureSettings

TOO_LOW = {
    "components": 0, "shrinkage": -0.1, "window.queue": 0, "window.points": 0, "start.points": 0,
    "start.again": 0, "dual.eps": 0.0, "dual.samples": 0, "dual.temperature": 0.0,
    "dual.ascents": -1, "dual.descents": 0, "dual.hidden": 0, "dual.floor": -0.1, "em.passes": 0,
    "em.every": 0,
}  # fmt: skip
OBJECTIVE = {"dual": "dual", "em": "refit-em"}


def made(**given: Any) -> MixtureSettings:
    group = next(iter(given)).split(".")[0]
    return from_mapping(MixtureSettings, {"objective": OBJECTIVE.get(group, "sinkhorn")} | given)


@pytest.mark.parametrize(("name", "value"), TOO_LOW.items())
def test_a_value_too_low_is_refused_by_its_name(name: str, value: float) -> None:
    with pytest.raises(OcilError, match=f"^Setting {name} is {value} but must be at least"):
        made(**{name: value})


@pytest.mark.parametrize(
    "name", [name for name, field in fields_of(MixtureSettings).items() if field.choices]
)
def test_an_unknown_choice_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(OcilError, match=f"^Setting {name} in the settings is 'other' but must be"):
        made(**{name: "other"})


@pytest.mark.parametrize("name", ["dual.floor", "shrinkage"])
def test_a_share_above_one_is_refused(name: str) -> None:
    with pytest.raises(OcilError, match=f"^Setting {name} is 1.5 but must be .* at most 1"):
        made(**{name: 1.5})
    assert made(**{name: 1.0})


@pytest.mark.parametrize(
    ("objective", "name", "value"),
    [
        ("sinkhorn", "dual.eps", 0.3),
        ("nll", "dual.eps", 0.3),
        ("debiased", "dual.ascents", 1),
        ("em", "em.passes", 3),
        ("task-em", "em.every", 3),
        ("batch-em", "window.points", 8),
        ("refit-em", "start.again", None),
    ],
)
def test_an_option_that_the_objective_does_not_use_is_refused(
    objective: str, name: str, value: Any
) -> None:
    said = f"^Setting {name} has no effect with objective = {objective}; it needs objective = "
    with pytest.raises(OcilError, match=said):
        from_mapping(MixtureSettings, {"objective": objective, name: value})


def test_options_of_the_network_need_one() -> None:
    given = {"objective": "dual", "dual.pairing": "one", "dual.ascents": 2}
    with pytest.raises(OcilError, match=r"dual\.ascents has no effect with dual\.pairing = one"):
        from_mapping(MixtureSettings, given)
