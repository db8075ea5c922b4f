"""From an id such as "er-ace" to its learner, without importing the others.

A built-in method lives in the file of its id ("er-ace" -> er_ace.py): adding a method is adding a
file. Other packages register theirs through the entry point group `ocil.learners`.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
from importlib import metadata
from importlib.resources import files
from typing import TYPE_CHECKING

import ocil.learners
from ocil.errors import OcilError, suggest

if TYPE_CHECKING:
    from ocil.learners.learner import Learner

# Files beside the methods that are none.
_SHARED = {
    "holistic",
    "learner",
    "model",
    "otc_reading",
    "otc_settings",
    "readouts",
    "registry",
    "state",
}


@functools.cache
def _foreign() -> tuple[metadata.EntryPoint, ...]:
    """Methods of other packages; looking through all that are installed is slow, so once."""
    return tuple(metadata.entry_points(group="ocil.learners"))


def names() -> list[str]:
    """All method ids, sorted; imports none of them."""
    built_in = {m.name for m in pkgutil.iter_modules(ocil.learners.__path__)} - _SHARED
    foreign = {entry.name for entry in _foreign()}
    return sorted({n.replace("_", "-") for n in built_in} | foreign)


def get(method: str) -> type[Learner]:
    """The learner class of an id."""
    for entry in _foreign():
        if entry.name == method:
            return entry.load()
    if method not in names():
        known = ", ".join(names())
        raise OcilError(f"Unknown method '{method}'.{suggest(method, names())} Known: {known}.")
    module = importlib.import_module(f"ocil.learners.{method.replace('-', '_')}")
    found = [v for v in vars(module).values() if getattr(v, "method", None) == method]
    return found[0]


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
