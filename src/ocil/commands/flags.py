"""Flags of `ocil run METHOD`, read and explained from the catalog: no method is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ocil.errors import OcilError, suggest
from ocil.settings import Field, Fields
from ocil.text import plain

_WORDS = {"true": True, "false": False}

MAX_CHOICES = 28  # letters of a flag's choices in the first column of its help


def flag_name(setting: str) -> str:
    return f"--{setting.replace('_', '-')}"


def read_flags(
    words: Sequence[str], fields: Fields, prog: str, rest: list[str] | None = None
) -> dict[str, Any]:
    """Values of `--name value`, `--name=value`, `--name` and `--no-name`; the last one counts.

    Words that are no flags are added to `rest`; without it they are a mistake.

    >>> known = {"lr": Field(("float",), (), 0.1, 0.1), "fast": Field(("bool",), (), False, False)}
    >>> read_flags(["--lr", "1", "--fast"], known, "ocil run")
    {'lr': 1.0, 'fast': True}
    """
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        if rest is not None and not left[0].startswith("-"):
            rest.append(left.pop(0))
            continue
        word, given, value = left.pop(0).partition("=")
        key = word.removeprefix("--").replace("-", "_")
        if not word.startswith("--"):
            raise OcilError(
                f"'{word}' is no flag; settings are given as --name value. {_see(prog)}"
            )
        off = key.removeprefix("no_")
        if key not in fields and off in fields and fields[off].types == ("bool",) and not given:
            found[off] = False
            continue
        if key not in fields:
            flags = {name: flag_name(name) for name in fields}
            now = [flags[name] for name, field in fields.items() if {key, off} & {*field.was}]
            near = f" It is now {now[0]}." if now else suggest(word, flags.values())
            raise OcilError(f"Unknown flag {word}.{near} {_see(prog)}")
        if not given:
            if fields[key].types == ("bool",):
                found[key] = True
                continue
            if not left:
                raise OcilError(f"{word} needs a value: {fields[key].wanted}. {_see(prog)}")
            value = left.pop(0)
        if fields[key].types == ("tuple",):
            found[key] = (*found.get(key, ()), value)
        else:
            found[key] = read_value(word, value, fields[key], prog)
    return found


def _see(prog: str) -> str:
    return f"See `{prog} --help`."


def read_value(word: str, text: str, field: Field, prog: str) -> Any:
    """The first of the types of a field that a text can be read as."""
    if text in field.choices:
        return text
    readers = {"bool": _WORDS.__getitem__, "int": int, "float": float, "str": str, "Path": Path}
    for name in field.types:
        if name == "none" and text.lower() == "none":
            return None
        try:
            return readers[name](text)
        except (ValueError, KeyError):
            continue
    raise OcilError(f"{word} is '{text}' but must be {field.wanted}. {_see(prog)}")


def explain(
    title: str,
    usage: str,
    groups: Mapping[str, tuple[Fields, Mapping[str, Any]]],
    positional: Sequence[str] = (),
) -> Any:
    """Help, as rich prints it: a line for each flag, with what holds unless it is given."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = [Text(usage, style="bold"), Text(f"{title}\n")]
    for heading, (fields, values) in groups.items():
        table = Table(title=heading, title_justify="left", box=None, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, field in fields.items():
            flag = name.upper() if name in positional else flag_name(name)
            kinds = [kind.upper() for kind in field.types if kind not in ("bool", "none", "tuple")]
            takes, words = "|".join([*kinds, *field.choices]), ""
            if len(takes) > MAX_CHOICES:  # the other column needs room to be read
                takes, words = "WORD", f" One of {', '.join(field.choices)}."
            usual = "" if values.get(name) is None else f" [{plain(values[name], 60)}]"
            needs = "".join(f" With {k} {' or '.join(v)}." for k, v in field.only.items())
            table.add_row(Text(f"{flag} {takes}"), Text(f"{field.help}{words}{needs}{usual}"))
        parts.append(table)
    return Group(*parts)
