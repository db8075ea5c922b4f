"""What the commands share: flags from dataclasses, and printing."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import tyro
from rich.console import Console
from rich.text import Text

from ocil.errors import OcilError
from ocil.text import plain

ENDLESS = 10_000  # columns


def parse(kind: Any, words: Sequence[str], prog: str, text: str = "", **default: Any) -> Any:
    """Flags from the fields of a dataclass; a mistake is explained in one sentence."""
    flat = tyro.conf.OmitArgPrefixes[tyro.conf.OmitSubcommandPrefixes[kind]]
    said, told = io.StringIO(), _Stdout()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(told):
            return tyro.cli(flat, prog=prog, args=list(words), description=text or None, **default)
    except SystemExit as stop:
        if stop.code != 2:  # help was asked for
            sys.stdout.write(_visible(told.getvalue()))
            raise
        raise OcilError(f"{_sentence(said.getvalue())} See `{prog} --help`.") from None


class _Stdout(io.StringIO):
    """Takes what is meant for stdout, as if it were that: with its colours and letters."""

    def __init__(self) -> None:
        super().__init__()
        self.real = sys.stdout

    def isatty(self) -> bool:
        return self.real.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.real.encoding


def _visible(help_text: str) -> str:
    """Help shows defaults, which a file or a word may have set; only the parser's colours stay."""
    parts = re.split(r"(\n|\x1b\[[0-9;]*m)" if sys.stdout.isatty() else r"(\n)", help_text)
    return "".join(p if i % 2 else plain(p, 10_000) for i, p in enumerate(parts))


def _sentence(panel: str) -> str:
    """What the parser says in a box of lines, as one line: the message and its best suggestion."""
    body = re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯]", "", panel.split("\n", 1)[-1])
    message, *rest = re.split(r"─{3,}|Got errors:", body)
    near = re.search(r"Perhaps you meant:\s+(--[\w-]+)", " ".join(rest))
    hint = f" Did you mean {near[1]}?" if near else ""
    return " ".join(message.split()).rstrip(".") + "." + hint


def say(*things: Any) -> None:
    """Print rich renderables and lines of text, which are not read as markup."""
    console = screen()
    for thing in things:
        if isinstance(thing, str):
            console.print(Text(plain(thing, 10_000)), soft_wrap=not console.is_terminal)
        else:
            console.print(thing)


def screen() -> Console:
    """The terminal; a pipe or a file has no width, unless COLUMNS names one."""
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = ENDLESS
    return console
