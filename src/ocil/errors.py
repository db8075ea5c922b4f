"""The one exception family of ocil: what goes wrong for a person, said in one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OcilError(Exception):
    """Something a person can mend; its message names the value and the remedy."""

    exit_code = 2


class Busy(OcilError):
    """Another process is at the same work."""

    exit_code = 75  # sysexits.h: try again later


class Stopped(Exception):
    """A signal ended a run after its current step; a checkpoint was written."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


def suggest(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known word, or an empty string.

    >>> suggest("mnits", ["digits", "mnist"])
    " Did you mean 'mnist'?"
    >>> suggest("zebra", ["digits", "mnist"])
    ''
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""
