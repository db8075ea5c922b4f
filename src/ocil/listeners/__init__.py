"""Listeners get the records of finished runs: `ocil run METHOD ... --listen NAME=PLACE`.

A listener is a function of a record. It is made before the run starts, so that what is missing is
said at once, and called when the record is on the disk. It gets a copy and can neither alter nor
stop anything: one that fails costs a warning. Other packages register theirs, a function from
PLACE to a listener, through the entry point group `ocil.listeners`.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ocil import text
from ocil.errors import OcilError, suggest

GROUP = "ocil.listeners"
BUILT_IN = (EntryPoint("tensorboard", "ocil.listeners.tensorboard:TensorBoard", GROUP),)

Listener = Callable[[dict[str, Any]], object]

_log = logging.getLogger(__name__)


def known() -> dict[str, EntryPoint]:
    """Every listener by its name; one of another package wins over ours of the same name."""
    return {entry.name: entry for entry in (*BUILT_IN, *entry_points(group=GROUP))}


def opened(wishes: Sequence[str]) -> dict[str, Listener]:
    """The listeners that NAME=PLACE ask for, ready for records."""
    found, entries = {}, known() if wishes else {}
    for wish in wishes:
        name, _, place = wish.partition("=")
        if not place:
            raise OcilError(f"--listen is '{wish}' but must be NAME=PLACE, as in tensorboard=logs.")
        if name not in entries:
            names, hint = ", ".join(sorted(entries)), suggest(name, entries)
            raise OcilError(f"Unknown listener '{name}'.{hint} Known: {names}.")
        try:
            found[wish] = entries[name].load()(place)
        except OcilError:
            raise
        except Exception as error:
            raise OcilError(
                f"Listener '{name}' cannot be used ({_short(error)}); mend it or leave it out."
            ) from error
    return found


def emit(listeners: Mapping[str, Listener], record: Mapping[str, Any]) -> None:
    """Call each listener with a copy of a finished record; none of them can do harm to the run."""
    for wish, listener in listeners.items():
        try:
            listener(copy.deepcopy(dict(record)))
        except (Exception, SystemExit) as error:  # it may not end the program either
            _log.warning(
                "Listener '%s' failed (%s); the run and its record are whole.", wish, _short(error)
            )
            _log.debug("Where listener '%s' failed:", wish, exc_info=True)


def _short(error: BaseException) -> str:
    return text.plain(f"{type(error).__name__}: {error}")
