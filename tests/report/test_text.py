"""Hostile text is made harmless in every language."""

from __future__ import annotations

import shlex

import pytest

from ocil.report import text


def test_plain_shows_what_would_be_invisible() -> None:
    assert text.plain("a\tb\u202ec\u2028\x9b") == "a\\x09b\\u202ec\\u2028\\x9b"
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
        "a\nb",
    ],
)
def test_a_pasted_command_runs_nothing_else(given: str) -> None:
    shown = text.command(given)
    assert "\n" not in shown
    bare = "".join(shlex.shlex(shown, posix=False))  # quotes kept: what is outside them is safe
    while "'" in bare:
        before, _, rest = bare.partition("'")
        bare = before + rest.partition("'")[2]
    assert not set(bare) & set(";$`&|>")


def test_an_ordinary_command_is_left_alone() -> None:
    given = "ocil run er --data mnist --memory 500 --seed 0 --out runs/er-0"
    assert text.command(given) == given
