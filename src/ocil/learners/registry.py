"""From an id such as "er-ace" to its learner, without importing the others.

A built-in method lives in the file of its id ("er-ace" -> er_ace.py): adding a method is adding a
file. Other packages register theirs through the entry point group `ocil.learners`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from importlib import metadata
from typing import TYPE_CHECKING

import ocil.learners
from ocil.errors import OcilError, suggest

if TYPE_CHECKING:
    from ocil.learners.learner import Learner

# Files beside the methods that are none.
_SHARED = {"holistic", "learner", "model", "readouts", "registry", "state"}


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
