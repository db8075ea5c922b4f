"""Text from records made harmless: it shows as text in every language a report is written in.

`plain` comes first and makes control characters visible, so no newline, terminal sequence or
change of writing direction reaches a renderer.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Sequence
from typing import Any

_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})  # control, surrogate, line and paragraph separators

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"\ensuremath{\pm}",
    "–": "--",
    **{mark: "\\" + mark for mark in "&%$#_{}"},
    **{mark: "{" + mark + "}" for mark in "[]*\"`'-"},  # arguments of \\ and ligatures
}


def plain(text: object, limit: int = 200) -> str:
    r"""One line of visible characters, at most `limit` of them.

    >>> print(plain("a\nb\x1b[31m"), plain("abcdef", limit=4))
    a\x0ab\x1b[31m abc…
    """
    shown = "".join(_visible(c) for c in str(text)[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _visible(c: str) -> str:
    if c not in _DIRECTION and unicodedata.category(c) not in _HIDDEN:
        return c
    return f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"


def markdown(text: str) -> str:
    r"""Escape what GitHub's Markdown would read as markup, a table border, HTML or a link.

    >>> print(markdown("a|b <i> *x* https://a.b"))
    a\|b &lt;i&gt; \*x\* https&#58;//a.b
    """
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\|*_`\[\]#~$!])", r"\\\1", text)
    return text.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def latex(text: str) -> str:
    r"""Escape the special characters of LaTeX.

    >>> print(latex("50% of a_b\\c ± 1"))
    50\% of a\_b\textbackslash{}c \ensuremath{\pm} 1
    """
    return "".join(_LATEX.get(c, c) for c in text)


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)


def csv_cell(text: str) -> str:
    """A leading apostrophe keeps a spreadsheet from running a cell as a formula; numbers are none.

    >>> csv_cell("=1+1"), csv_cell("er"), csv_cell("-1")
    ("'=1+1", 'er', '-1')
    """
    if _NUMBER.fullmatch(text):
        return text
    return "'" + text if text.lstrip().startswith(tuple("=+-@＝＋－＠")) else text


def command(text: str) -> str:
    """The command with every word quoted again, so that pasting it runs nothing else.

    >>> command("ocil run er --seed 0; rm x")
    "ocil run er --seed '0;' rm x"
    """
    try:
        words = shlex.split(text)
    except ValueError:  # an open quote
        words = [text]
    return plain(shlex.join(words), limit=10_000)


def setting(value: Any) -> str:
    """A setting's value as a person writes it.

    >>> setting(0.0001), setting(True), setting(None), setting("affine")
    ('0.0001', 'true', 'none', 'affine')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else plain(value, limit=60)


def number_ranges(numbers: Sequence[int]) -> str:
    """Sorted numbers, neighbours joined.

    >>> number_ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for n in sorted(set(numbers)):
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
