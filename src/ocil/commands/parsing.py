"""What the commands share: flags from dataclasses, and printing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console


def parse(kind: Any, words: Sequence[str], prog: str, text: str = "", **default: Any) -> Any:
    """Flags from the fields of a dataclass; a mistake is explained and ends with exit code 2."""
    flat = tyro.conf.OmitArgPrefixes[tyro.conf.OmitSubcommandPrefixes[kind]]
    return tyro.cli(flat, prog=prog, args=list(words), description=text or None, **default)


def peek(words: Sequence[str], flag: str) -> str | None:
    """Value of a flag before the real parser runs, which needs it to know its defaults.

    >>> peek(["--data", "mnist", "--seed=3"], "data"), peek(["--seed=3"], "seed")
    ('mnist', '3')
    """
    for i, word in enumerate(words):
        if word == f"--{flag}" and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"--{flag}="):
            return word.split("=", 1)[1]
    return None


def say(*things: Any) -> None:
    """Print rich renderables; plain text is not read as markup."""
    console = Console()
    for thing in things:
        console.print(thing, markup=False, highlight=False)


def optional_path(text: str | None) -> Path | None:
    return Path(text) if text else None
