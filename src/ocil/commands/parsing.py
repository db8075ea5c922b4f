"""What the commands share: options from dataclasses, and printing."""

from __future__ import annotations

import dataclasses
import os
import sys
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from rich.console import Console
from rich.text import Text

from ocil.commands.flags import explain, read_flags, read_value
from ocil.errors import OcilError
from ocil.learners.catalog import documented
from ocil.settings import fields_of
from ocil.text import plain

PIPE_WIDTH = 10_000  # columns
T = TypeVar("T")
Positional = Annotated[T, "given without a flag"]


def parse(kind: type[T], words: Sequence[str], prog: str) -> T:
    """The options of a command from the fields of a dataclass; a mistake is one sentence."""
    hints = typing.get_type_hints(kind, include_extras=True)
    positional = [name for name in hints if typing.get_origin(hints[name]) is Annotated]
    if {"-h", "--help"} & set(words):
        _help(kind, prog, positional)
        sys.exit(0)
    fields, rest = fields_of(kind), list[str]()
    flags = {name: field for name, field in fields.items() if name not in positional}
    cut = words.index("--") if "--" in words else len(words)
    found = read_flags(words[:cut], flags, prog, rest)
    rest += words[cut + 1 :]
    for name in positional:
        if fields[name].types == ("tuple",):
            found[name], rest = tuple(map(Path, rest)), []
        elif rest:
            found[name] = read_value(name.upper(), rest.pop(0), fields[name], prog)
    if rest:
        raise OcilError(f"'{rest[0]}' is a word too many. See `{prog} --help`.")
    for field in dataclasses.fields(typing.cast(Any, kind)):
        if field.default is dataclasses.MISSING and field.name not in found:
            word = field.name.upper() if field.name in positional else f"--{field.name}"
            raise OcilError(f"`{prog}` needs {word}. See `{prog} --help`.")
    return kind(**found)


def _help(kind: type, prog: str, positional: Sequence[str]) -> None:
    fields = documented(kind)
    unset = (None, (), dataclasses.MISSING)
    values = {name: field.default for name, field in fields.items() if field.default not in unset}
    named = {name: field for name, field in fields.items() if name in positional}
    flags = {name: field for name, field in fields.items() if name not in positional}
    groups = {heading: (own, values) for heading, own in (("", named), ("Flags", flags)) if own}
    ends = {name: "..." if field.types == ("tuple",) else "" for name, field in named.items()}
    usage = [prog, *(name.upper() + ends[name] for name in positional), "[flags]" if flags else ""]
    about = " ".join((kind.__doc__ or "").split())
    say(explain(about, " ".join(usage).strip(), groups, positional))


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
        console.width = PIPE_WIDTH
    return console
