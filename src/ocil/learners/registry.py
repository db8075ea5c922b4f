"""From an id such as "er-ace" to its learner, without importing the others.

A built-in method lives in the file of its id ("er-ace" -> er_ace.py): adding a method is adding a
file. Other packages register theirs through the entry point group `ocil.learners`.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
import sys
from collections.abc import Mapping
from importlib import metadata
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import ocil.learners
from ocil.data.sources import SOURCES
from ocil.errors import OcilError, suggest
from ocil.learners import catalog, upgrades
from ocil.settings import Method, Settings, from_mapping, upgrade
from ocil.settings import resolve as resolve_layers

if TYPE_CHECKING:
    from ocil.learners.learner import Learner

# Files beside the methods that are none.
_SHARED = {
    "anchor",
    "build",
    "catalog",
    "encoder",
    "fixed",
    "holistic",
    "judging",
    "jury",
    "learner",
    "model",
    "otc_fits",
    "otc_frozen",
    "otc_readouts",
    "otc_settings",
    "presets",
    "reader",
    "readouts",
    "registry",
    "parts",
    "pool",
    "replay",
    "scaling",
    "taking_back",
    "upgrades",
}


@functools.cache
def _foreign() -> tuple[metadata.EntryPoint, ...]:
    """Methods of other packages; looking through all that are installed is slow, so once."""
    return tuple(metadata.entry_points(group="ocil.learners"))


def built_in() -> list[str]:
    """Ids of the methods that come with ocil: the files beside this one."""
    found = {module.name for module in pkgutil.iter_modules(ocil.learners.__path__)} - _SHARED
    return sorted(name.replace("_", "-") for name in found)


def names() -> list[str]:
    """All method ids, sorted; imports none of them."""
    return sorted({*built_in(), *(entry.name for entry in _foreign())})


def get(method: str) -> type[Learner]:
    """The learner class of an id."""
    for entry in _foreign():
        if entry.name == method:
            return entry.load()
    place = f"ocil.learners.{method.replace('-', '_')}"
    # Looking through the folder takes longer than all else that a large study asks.
    if place not in sys.modules and method in names():
        importlib.import_module(place)
    for value in vars(sys.modules[place]).values() if place in sys.modules else ():
        if getattr(value, "method", None) == method:
            return value
    known = ", ".join(names())
    raise OcilError(f"Unknown method '{method}'.{suggest(method, names())} Known: {known}.")


def info(method: str) -> Method:
    """What is known of a method; its code is loaded only if the catalog does not have it."""
    foreign = any(entry.name == method for entry in _foreign())
    known = {} if foreign else catalog.read()[1]
    return known[method] if method in known else catalog.describe(get(method))


def resolve(
    method: str, *given: Mapping[str, Any], fitting: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], str]:
    """All settings of a run and the name of its preset; see `ocil.settings.resolve`.

    `fitting` stands for the protocol where the data are not named ones.
    """
    known = info(method)
    data = known.fields["data"].default
    for layer in given:
        data = layer.get("data", data)
    protocol = SOURCES[data].protocol if data in SOURCES else fitting or {}
    return resolve_layers(known, protocol, *given)


def upgraded(method: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of an older file in today's names; as they are for a method that is not here."""
    change = upgrades.CHANGED.get(method, dict)
    try:
        return upgrade(info(method), change(settings))
    except (OcilError, ImportError):
        return dict(settings)


def make_settings(method: str, values: Mapping[str, Any], where: str = "the settings") -> Settings:
    """The settings a learner takes, from plain values; ranges are checked."""
    return from_mapping(get(method).settings_type, values, where)


def trains(method: str) -> bool:
    """Whether a method trains its network; the others have a fixed encoder."""
    return info(method).fields["net"].default != "patches"


def measured_costs(net: str) -> dict[str, dict[str, float]]:
    """Cost of a step by method, as shipped with the package (`bench/methods.py` writes it)."""
    found = files("ocil.learners").joinpath("costs.json")
    return json.loads(found.read_text(encoding="utf-8")).get(net, {}) if found.is_file() else {}


def relative_cost(method: str, net: str) -> float | None:
    """Time of a batch relative to ER's, both at their presets with one gradient step.

    Where it was not measured with this net, the images through the backbone stand for it.
    """
    costs = measured_costs(net)
    if method in costs:
        return costs[method]["time"]
    costs = measured_costs("mlp")
    return costs[method]["images"] / costs["er"]["images"] if method in costs else None
