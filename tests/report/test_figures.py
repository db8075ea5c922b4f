"""Figures are deterministic, safe with any text, and leave no global state behind."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from ocil.errors import OcilError

pytest.importorskip("matplotlib")

from ocil.report import figures

MATRIX = np.array([[90.0, np.nan], [20.0, 100.0]])
HOSTILE = "$\\frac$ <script>&amp;|"  # a formula that cannot be set


def line(name: str, runs: int = 3, start: int = 1) -> figures.Line:
    x = np.arange(start, start + 5, dtype=np.float64)
    return figures.Line(name, x, 80 + np.outer(np.arange(runs), np.ones(5)))


def test_matrix_shows_its_numbers() -> None:
    drawn = figures.svg(figures.matrix_figure(MATRIX), "a")
    texts = [e.text for e in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert {"90.0", "20.0", "100"} <= set(texts)
    assert "nan" not in drawn.lower()


def test_a_large_matrix_has_no_numbers_in_it() -> None:
    drawn = figures.svg(figures.matrix_figure(np.full((20, 20), 33.3)), "a")
    assert "33.3" not in drawn


def test_a_joint_run_is_a_single_point_and_an_empty_matrix_is_fine() -> None:
    point = figures.Line("joint", np.array([5.0]), np.array([[97.0]]))
    assert "joint" in figures.svg(figures.curve_figure([line("er"), point]), "a")
    assert figures.svg(figures.matrix_figure(np.full((2, 2), np.nan)), "a").startswith("<svg")
    empty = figures.Line("none", np.empty(0), np.empty((1, 0)))
    assert figures.svg(figures.curve_figure([empty]), "a").startswith("<svg")


def test_svg_is_the_same_every_time_and_follows_the_colour_of_the_page() -> None:
    def draw(salt: str) -> str:
        lines = [line("head"), line("ema-head", runs=1)]
        return figures.svg(figures.anytime_figure(lines, [2.5]), salt)

    first = draw("a")
    assert draw("a") == first
    assert figures.INK not in first
    assert "currentColor" in first
    ids = set(re.findall(r'id="([^"]+)"', first))
    assert ids
    assert not ids & set(re.findall(r'id="([^"]+)"', draw("b")))


@pytest.mark.parametrize("name", [HOSTILE, "_hidden", "数字", "a\nb", ""])
def test_any_text_is_drawn_as_text(name: str) -> None:
    drawn = figures.svg(figures.curve_figure([line(name), line("other")]), "a")
    drawn += figures.svg(figures.matrix_figure(MATRIX, [name, "x" * 500]), "b")
    assert "<script" not in drawn
    ET.fromstring(f"<div>{drawn}</div>")
    if name == "_hidden":
        assert "_hidden" in drawn.split("</svg>")[0]


def test_more_lines_than_colours_differ_by_style() -> None:
    drawn = figures.svg(figures.curve_figure([line(str(n), runs=1) for n in range(8)]), "a")
    assert "stroke-dasharray" in drawn


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_saved_files_are_the_same_every_time(tmp_path: Path, ending: str) -> None:
    files = [tmp_path / f"{n}.{ending}" for n in "ab"]
    for file in files:
        assert figures.save(figures.matrix_figure(MATRIX, [HOSTILE, "b"]), file) == file
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes()[:4] in (b"\x89PNG", b"%PDF")
    assert b"CreationDate" not in files[0].read_bytes()  # it only changes every second


def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    figure = figures.matrix_figure(MATRIX)
    with pytest.raises(OcilError, match=r"\.png or \.pdf"):
        figures.save(figure, tmp_path / "a.exe")
    with pytest.raises(OcilError, match="cannot be written"):
        figures.save(figure, tmp_path / "missing" / "a.png")


def test_pyplot_and_global_settings_are_left_alone() -> None:
    code = (
        "import sys, matplotlib, numpy as np\n"
        "def now():  # to ask for the backend would choose one\n"
        "    return {k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != 'backend'}\n"
        "before = now()\n"
        "from ocil.report import figures\n"
        "figures.svg(figures.matrix_figure(np.ones((2, 2))), 'a')\n"
        "assert now() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OcilError, match=r"pip install ocil\[report\]"):
        figures.matrix_figure(MATRIX)
