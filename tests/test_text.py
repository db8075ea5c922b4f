"""Hostile text is made harmless in every language."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
from markdown_it import MarkdownIt

from ocil import text


def test_plain_shows_what_would_be_invisible() -> None:
    assert text.plain("a\tb\u202ec\u2028\x9b") == "a\\x09b\\u202ec\\u2028\\u009b"
    assert text.plain("Überraschung 数字 👩‍🔬") == "Überraschung 数字 👩‍🔬"
    assert text.plain("\ud800") == "\\ud800"
    assert len(text.plain("\x00" * 500, limit=30)) == 30


@pytest.mark.parametrize("name", ["| a | b |", "<img src=x>", "**b**", "[x](http://y)", "`c`"])
def test_markdown_leaves_no_markup(name: str) -> None:
    escaped = text.markdown(name)
    assert "<" not in escaped
    assert "://" not in escaped
    for mark in "|*[]`":
        assert all(escaped[i - 1] == "\\" for i, c in enumerate(escaped) if c == mark)


def test_latex_escapes_every_special_character() -> None:
    assert text.latex("\\input{a}") == r"\textbackslash{}input\{a\}"
    assert text.latex("#$%&_{}") == r"\#\$\%\&\_\{\}"
    assert text.latex("~^[*]") == r"\textasciitilde{}\textasciicircum{}{[}{*}{]}"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", " =", "＝"])
def test_csv_formulas_are_defused(start: str) -> None:
    assert text.csv_cell(f"{start}cmd()").startswith("'")


@pytest.mark.parametrize(
    "given",
    [
        "ocil run er; rm -rf ~",
        "ocil $(reboot)",
        "ocil `x`",
        "a && b | c > d",
        'open "quote',
        "ocil 'a\nb'",
        "ocil '<script>' 'é\\input' \"it's <\" '\x1b[31m\x9b\u202e'",
    ],
)
def test_a_pasted_command_gives_the_same_words_and_runs_nothing_else(given: str) -> None:
    shown = text.command(given)
    assert not set("\n\x1b<") & set(shown)
    script = f"set -- {shown}; printf '%s\\0' \"$@\""
    done = subprocess.run(["bash", "-c", script], capture_output=True, env={"LC_ALL": "C.UTF-8"})
    assert done.stderr == b""
    words = done.stdout.decode().split("\0")[:-1]
    assert words == (shlex.split(given) if given.count('"') != 1 else [given])


def test_an_ordinary_command_is_left_alone() -> None:
    given = "ocil run er --data mnist --memory 500 --seed 0 --out runs/er-0"
    assert text.command(given) == given


@pytest.mark.parametrize(
    "given",
    [
        "<script>",
        "</p>",
        "<!--",
        "[x](JavaScript :y)",
        "[x](java&#115;cript:y)",
        "\x1b[31m",
        "\u202e",
    ],
)
def test_markdown_that_people_wrote_runs_nothing(given: str) -> None:
    shown = text.without_html(given)
    assert shown != given
    page = MarkdownIt("commonmark", {"html": True})
    page.validateLink = lambda url: True  # type: ignore[method-assign]
    found = page.render(shown)
    assert not re.search(r"<(?!/?(p|a)\b)|href=\"javascript:|[\x1b\u202e]", found, re.I)


def test_ordinary_markdown_is_left_alone() -> None:
    given = "# A\n\n- *b* `c --data d` [e](f/g.md) & a < b, data: x\n\n    code\n"
    assert text.without_html(given) == given.rstrip("\n")
