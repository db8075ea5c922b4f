"""The one exception family of ocil: what goes wrong for a person, said in one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


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


def brief(error: BaseException, limit: int = 200) -> str:
    """What an error says, on one line and without a full stop, for a sentence around it."""
    return " ".join(str(error).split())[:limit].rstrip(".") or type(error).__name__


# All that content of any kind can provoke while it is read.
UNREADABLE = (
    OSError, LookupError, ValueError, TypeError, AttributeError, RuntimeError, ArithmeticError,
    AssertionError, MemoryError,
)  # fmt: skip


@contextmanager
def refusing(sentence: str, remedy: str = "", *more: type[Exception]) -> Iterator[None]:
    """Turn what content provokes into "SENTENCE (the problem); REMEDY."; an OcilError passes.

    `more` are the errors of a package that reads.
    """
    try:
        yield
    except (*UNREADABLE, *more) as error:
        end = f"; {remedy}." if remedy else "."
        raise OcilError(f"{sentence} ({brief(error)}){end}") from error


def suggest(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known word, or an empty string.

    >>> suggest("mnits", ["digits", "mnist"])
    " Did you mean 'mnist'?"
    >>> suggest("zebra", ["digits", "mnist"])
    ''
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""
