"""The command line that gives the settings of a run, in today's names."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ocil.data.own import OwnData
from ocil.data.sources import default_net
from ocil.learners import registry
from ocil.settings import with_role

ALWAYS_SHOWN = ("data", "memory", "seed")


def command(
    method: str, settings: Mapping[str, Any], places: Mapping[str, str] = MappingProxyType({})
) -> str:
    """A command that gives these settings: it names what presets do not make of them today.

    It is made anew whenever a record is read. `places` are those of your own data (`places_of`).
    """
    preset, _ = registry.resolve(method, {k: settings[k] for k in ("data", "preset", "memory")})
    preset["preset"] = "default"
    defaults = {key: field.default for key, field in registry.info(method).fields.items()}
    # items of your own decide on net and augmentation where nobody does
    always = (*ALWAYS_SHOWN, *default_net((1,))) if places else ALWAYS_SHOWN
    words = ["ocil", "run", method]
    for key, value in ({**settings} | {k: v for k, v in places.items() if k == "data"}).items():
        # a method without memory is not asked to do without one
        shown = value != preset[key] or (key in always and not value == defaults[key] is None)
        if shown and key not in with_role("machine"):
            words += flag(key, value)
    more = [flag(key, value) for key, value in places.items() if key != "data"]
    return shlex.join(sum(more, words))


def places_of(own: OwnData | None) -> dict[str, str]:
    """Data of your own as a command names them: seen from their folder, a record holds no path."""
    if own is None:
        return {}
    found = {"data": f"./{own.path.resolve().name}"}
    found |= {} if own.resize is None else {"resize": str(own.resize)}
    return found | ({} if own.bad_images == "fail" else {"bad_images": own.bad_images})


def places_in(command: str) -> dict[str, str]:
    """The places in the command of a record; none for a named data set."""
    given = dict(itertools.pairwise(shlex.split(command)))
    if not given.get("--data", "").startswith("./"):
        return {}
    keys = {"data": "--data", "resize": "--resize", "bad_images": "--bad-images"}
    return {key: given[word] for key, word in keys.items() if word in given}


def flag(key: str, value: Any) -> list[str]:
    """The words that set one setting.

    >>> flag("eval_every", 5), flag("validate", False)
    (['--eval-every', '5'], ['--no-validate'])
    """
    name = key.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", "none" if value is None else str(value)]
