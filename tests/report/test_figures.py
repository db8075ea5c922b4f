"""Figures for papers are deterministic, safe with any text, and leave no global state behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ocil.errors import OcilError
from ocil.report import charts
from ocil.report.charts import Chart, Line, Series

pytest.importorskip("matplotlib")

from ocil.report import figures

MATRIX = np.array([[90.0, np.nan], [20.0, 100.0]])
HOSTILE = "$\\frac$ <script>&amp;|"  # a formula that cannot be set


def line(name: str, runs: int = 3, start: int = 1) -> Line:
    x = np.arange(start, start + 5, dtype=np.float64)
    return Line(name, x, 80 + np.outer(np.arange(runs), np.ones(5)))


def all_kinds(name: str) -> list[Chart]:
    mark = Series(name, [90.0], [90.0], [89.0], [91.0], 1, notes=[name])
    alone = Series(name, [5.0], [4.0], look=7)
    return [
        charts.curves(name, [line(name), line("other", runs=1)], borders=[2.5]),
        charts.rows(name, name, [mark, alone], zero=True),
        charts.points(name, name, name, [mark, alone]),
        charts.heat(name, MATRIX),
        charts.cloud(name, [alone, mark]),
    ]


def words(figure: object) -> set[str]:
    from matplotlib.text import Text

    return {found.get_text() for found in figure.findobj(Text)}  # type: ignore[attr-defined]


def test_matrix_shows_its_numbers() -> None:
    said = words(figures.draw(charts.heat("", MATRIX)))
    assert {"90.0", "20.0", "100", "after task"} <= said
    assert "nan" not in said


def test_a_large_matrix_has_no_numbers_in_it() -> None:
    assert "33.3" not in words(figures.draw(charts.heat("", np.full((20, 20), 33.3))))


def test_a_joint_run_is_a_single_point_and_emptiness_is_fine(tmp_path: Path) -> None:
    point = Line("joint", np.array([5.0]), np.array([[97.0]]))
    assert {"joint", "er"} <= words(figures.draw(charts.curves("", [line("er"), point])))
    empty = Line("none", np.empty(0), np.empty((1, 0)))
    for figure in (
        figures.draw(charts.heat("", np.full((2, 2), np.nan))),
        figures.draw(charts.curves("", [empty])),
        figures.draw(charts.rows("", "", [])),
    ):
        assert figures.save(figure, tmp_path / "a.png").stat().st_size > 1000


def ticks(axis: object) -> list[str]:
    return [t.get_text() for t in axis.get_ticklabels() if t.get_text()]  # type: ignore[attr-defined]


def test_ticks_are_few_and_say_what_they_are() -> None:
    marks = [Series("a", [3.0], [1.0]), Series("b", [70.0], [2.0])]
    axes = figures.draw(charts.points("", "seconds", "%", marks)).axes[0]
    assert axes.get_xscale() == "log"
    assert [word for word in ticks(axes.xaxis) if word in ("5", "10", "20", "50")]
    assert not [t.get_text() for t in axes.xaxis.get_ticklabels(minor=True) if t.get_text()]
    wide = charts.points("", "bytes", "%", [Series("a", [1.0], [1.0]), Series("b", [1e6], [2.0])])
    assert {"1k", "1M"} <= set(ticks(figures.draw(wide).axes[0].xaxis))
    axes = figures.draw(charts.curves("", [line("er")])).axes[0]
    assert all(float(word) == int(float(word)) for word in ticks(axes.xaxis))
    cloud = figures.draw(charts.cloud("", [Series("a", [1.0], [1.0])])).axes[0]
    assert ticks(cloud.xaxis) == ticks(cloud.yaxis) == []


@pytest.mark.parametrize("name", [HOSTILE, "_hidden", "数字", "a\nb", ""])
def test_any_text_is_drawn_as_text(tmp_path: Path, name: str) -> None:
    for chart in all_kinds(name):
        figure = figures.draw(chart)
        assert "\n" not in "".join(words(figure))
        figures.save(figure, tmp_path / "a.pdf")
        if chart.kind == "lines":
            assert [word for word in words(figure) if name.replace("\n", "\\x0a") in word]


def test_more_lines_than_colours_differ_by_style() -> None:
    figure = figures.draw(charts.curves("", [line(str(n), runs=1) for n in range(8)]))
    drawn = [(x.get_color(), x.get_linestyle(), x.get_marker()) for x in figure.axes[0].lines]
    assert len(set(drawn)) == 8
    assert {style for _, style, _ in drawn} == {"-", "--"}


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_saved_files_are_the_same_every_time(tmp_path: Path, ending: str) -> None:
    files = [tmp_path / f"{n}.{ending}" for n in "ab"]
    for file in files:
        assert figures.save(figures.draw(charts.heat(HOSTILE, MATRIX)), file) == file
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].read_bytes()[:4] in (b"\x89PNG", b"%PDF")
    assert b"CreationDate" not in files[0].read_bytes()  # it only changes every second


def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    figure = figures.draw(charts.heat("", MATRIX))
    with pytest.raises(OcilError, match=r"\.png or \.pdf"):
        figures.save(figure, tmp_path / "a.exe")
    with pytest.raises(OcilError, match="cannot be written"):
        figures.save(figure, tmp_path / "missing" / "a.png")


def test_pyplot_and_global_settings_are_left_alone(tmp_path: Path) -> None:
    code = (
        "import sys, matplotlib, numpy as np\n"
        "def now():  # to ask for the backend would choose one\n"
        "    return {k: matplotlib.rcParams[k] for k in matplotlib.rcParams if k != 'backend'}\n"
        "before = now()\n"
        "from ocil.report import charts, figures\n"
        "figures.save(figures.draw(charts.heat('', np.ones((2, 2)))), sys.argv[1])\n"
        "assert now() == before\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    call = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "a.png")]
    subprocess.run(call, check=True, timeout=120)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OcilError, match=r"pip install ocil\[report\]"):
        figures.draw(charts.heat("", MATRIX))
