"""What the commands share: flags from dataclasses, and printing."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console

from ocil.errors import OcilError


def parse(kind: Any, words: Sequence[str], prog: str, text: str = "", **default: Any) -> Any:
    """Flags from the fields of a dataclass; a mistake is explained in one sentence."""
    flat = tyro.conf.OmitArgPrefixes[tyro.conf.OmitSubcommandPrefixes[kind]]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(flat, prog=prog, args=list(words), description=text or None, **default)
    except SystemExit as stop:
        if stop.code != 2:  # help was asked for
            raise
        raise OcilError(f"{_sentence(said.getvalue())} See `{prog} --help`.") from None


def _sentence(panel: str) -> str:
    """What the parser says in a box of lines, as one line: the message and its best suggestion."""
    body = re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯]", "", panel.split("\n", 1)[-1])
    message, *rest = re.split(r"─{3,}|Got errors:", body)
    near = re.search(r"Perhaps you meant:\s+(--[\w-]+)", " ".join(rest))
    hint = f" Did you mean {near[1]}?" if near else ""
    return " ".join(message.split()).rstrip(".") + "." + hint


def peek(words: Sequence[str], flag: str) -> str | None:
    """Value of a flag before the real parser runs, which needs it to know its defaults.

    Of one given twice the last counts, as for the parser.

    >>> peek(["--data", "mnist", "--seed=3"], "data"), peek(["--seed=3", "--seed", "4"], "seed")
    ('mnist', '4')
    """
    found = None
    for i, word in enumerate(words):
        if word == f"--{flag}" and i + 1 < len(words):
            found = words[i + 1]
        elif word.startswith(f"--{flag}="):
            found = word.split("=", 1)[1]
    return found


def say(*things: Any) -> None:
    """Print rich renderables; plain text is not read as markup."""
    console = Console()
    for thing in things:
        console.print(thing, markup=False, highlight=False)


def optional_path(text: str | None) -> Path | None:
    return Path(text) if text else None
