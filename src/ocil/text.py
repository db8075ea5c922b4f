"""All escaping: text from data, records, files and the command line shows as text everywhere.

One function a target: `plain` for the terminal, `html`, `markdown`, `latex`, `csv_cell`; a command
to be pasted goes through `command`, Markdown that people wrote through `without_html`. Each makes
control characters visible first, so that no newline, terminal sequence or change of writing
direction reaches anything that renders.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Sequence
from html import escape
from typing import Any

# control, formatting (writing direction among them), surrogates, line and paragraph separators
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"  # of emoji and of scripts that join letters
_MAX_LENGTH = 10_000  # characters of a text that has a place of its own

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
    r"""For the terminal: one line of visible characters, at most `limit` of them.

    >>> print(plain("a\nb\x1b[31m"), plain("abcdef", limit=4))
    a\x0ab\x1b[31m abc…
    """
    shown = "".join(_visible(c) for c in str(text)[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def _visible(c: str) -> str:
    return _numbered(c) if _is_hidden(c) else c


def _is_hidden(c: str) -> bool:
    return unicodedata.category(c) in _HIDDEN and c not in _JOINERS


def _numbered(c: str) -> str:
    r"""A character by its number, as Python, bash and zsh write it (there \x is a byte)."""
    code = ord(c)
    form = r"\x{:02x}" if code < 128 else r"\u{:04x}" if code < 2**16 else r"\U{:08x}"
    return form.format(code)


def html(text: object, limit: int = 200) -> str:
    """For HTML, also within attributes.

    >>> html('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return escape(plain(text, limit))


def markdown(text: object, limit: int = _MAX_LENGTH) -> str:
    r"""For Markdown: nothing that GitHub would read as markup, a table border, HTML or a link.

    >>> print(markdown("a|b <i> *x* https://a.b"))
    a\|b &lt;i&gt; \*x\* https&#58;//a.b
    """
    shown = plain(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    shown = re.sub(r"([\\|*_`\[\]#~$!])", r"\\\1", shown)
    return shown.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")


def without_html(content: str) -> str:
    r"""Markdown that somebody wrote, its HTML shown as text and its links never scripts.

    >>> print(without_html("**a** <script> [x](javascript:y) a < b"))
    **a** \<script> [x](javascript%3Ay) a < b
    """
    lines = content.splitlines()
    kept = "\n".join("".join(c if c == "\t" else _visible(c) for c in line) for line in lines)
    kept = re.sub(r"<(?=[a-zA-Z/!?])", r"\\<", kept)
    kept = re.sub(r"&(?=#?\w+;)", r"\\&", kept)  # an entity could spell what comes next
    return re.sub(r"(?i)\b(javascript|vbscript|data)\s*:(?=\S)", r"\1%3A", kept)


def latex(text: object, limit: int = _MAX_LENGTH) -> str:
    r"""For LaTeX: its special characters escaped.

    >>> print(latex("50% of a_b\\c ± 1"))
    50\% of a\_b\textbackslash{}c \ensuremath{\pm} 1
    """
    return "".join(_LATEX.get(c, c) for c in plain(text, limit))


_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", re.ASCII)


def csv_cell(text: object, limit: int = _MAX_LENGTH) -> str:
    """For CSV: a leading apostrophe keeps a spreadsheet from running a cell; numbers are none.

    >>> csv_cell("=1+1"), csv_cell("er"), csv_cell("-1")
    ("'=1+1", 'er', '-1')
    """
    shown = plain(text, limit)
    if _NUMBER.fullmatch(shown):
        return shown
    return "'" + shown if shown.lstrip().startswith(tuple("=+-@＝＋－＠")) else shown


def command(text: str) -> str:
    r"""The command with every word quoted again, so that pasting it runs nothing else.

    Hidden characters, < and \ are numbered, as bash and zsh read them in $'...'.

    >>> command("ocil run er --seed 0; rm x")
    "ocil run er --seed '0;' rm x"
    >>> print(command("ocil '<b>'"))
    ocil $'\x3cb>'
    """
    try:
        words = shlex.split(text)
    except ValueError:  # an open quote
        words = [text]
    return plain(" ".join(map(_quoted, words)), limit=10 * _MAX_LENGTH)


def _quoted(word: str) -> str:
    if not any(c in "<\\" or _is_hidden(c) for c in word):
        return shlex.quote(word)
    return "$'" + "".join(_numbered(c) if c in "<\\'" else _visible(c) for c in word) + "'"


def setting(value: Any) -> str:
    """A setting's value as a person writes it.

    >>> setting(0.0001), setting(True), setting(None), setting("affine")
    ('0.0001', 'true', 'none', 'affine')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else plain(value, limit=60)


def listed(names: Sequence[str]) -> str:
    """Names joined for a sentence.

    >>> listed(("a", "b", "c"))
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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
