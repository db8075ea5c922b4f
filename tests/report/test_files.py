"""Tables beside the page: in every language, safe, and none left over from an earlier page."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ocil.report.files import table_names, write_tables
from ocil.report.groups import Group, by_place, group
from ocil.report.runs import Run

Make = Callable[..., dict[str, Any]]


def test_a_section_has_its_tables_in_three_languages(tmp_path: Path, make_record: Make) -> None:
    records = [make_record(m, seed=s, shift=s) for m in ("er", "otc") for s in (0, 1, 2)]
    write_tables(grouped([*records, make_record(split="validation")]), tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    first = {f"{t}-1" for t in ("overview", "readouts", "differences")}
    assert names == {
        f"{n}.{e}" for n in first | {"overview-2", "readouts-2"} for e in ("md", "tex", "csv")
    }
    markdown = (tmp_path / "overview-1.md").read_text()
    assert markdown.startswith("# Overview: mnist, test images\n\n| method |")
    assert "**86.00 ± 1.00**" in markdown
    assert "    ocil run er --data mnist --seed 0  # seeds 0-2\n" in markdown
    latex = (tmp_path / "differences-1.tex").read_text()
    assert "er & otc & 500 & +0.00 & +0.00 to +0.00 & 0{-}2" in latex
    assert "% ocil run otc --data mnist --seed 0  # seeds 0-2\n" in latex
    [row, *_] = csv.DictReader(io.StringIO((tmp_path / "overview-1.csv").read_text()))
    assert float(row["accuracy_mean"]) == 81.0
    [row] = csv.DictReader(io.StringIO((tmp_path / "differences-1.csv").read_text()))
    assert (row["first"], row["second"], float(row["low"])) == ("er", "otc", 0.0)


def grouped(records: Iterable[dict[str, Any]]) -> list[Group]:
    return group(map(Run, records))


def test_tables_of_an_earlier_page_go_and_other_files_stay(
    tmp_path: Path, make_record: Make
) -> None:
    write_tables(grouped([make_record(), make_record(data="digits")]), tmp_path)
    (tmp_path / "overview-2.md.bak").touch()
    (tmp_path / "mine.md").touch()
    write_tables(grouped([make_record()]), tmp_path)
    kept = {path.name for path in tmp_path.iterdir() if "-1." not in path.name}
    assert kept == {"overview-2.md.bak", "mine.md"}


def test_hostile_text_is_text_in_every_language(
    tmp_path: Path, hostile_record: dict[str, Any]
) -> None:
    others = [hostile_record | {"seed": s} for s in range(3)]
    others += [r | {"method": "=cmd()", "readout": "head"} for r in others]
    write_tables(grouped(others), tmp_path)
    for path in tmp_path.iterdir():
        content = path.read_text()
        assert "\x1b" not in content
        if path.suffix == ".md":
            table = content.split("\n\n")[1]
            assert "<script" not in table
            assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1
            code = content.split("\n\n")[2].rstrip("\n").splitlines()
            assert all(line.startswith("    ocil ") for line in code)
        elif path.suffix == ".tex":
            outside = [line for line in content.splitlines() if not line.startswith("%")]
            assert not [line for line in outside if "$" in line.replace("\\$", "")]
            assert not [line for line in outside if "_" in line.replace("\\_", "")]
        else:
            cells = [cell for row in csv.reader(io.StringIO(content)) for cell in row]
            signs = [cell for cell in cells if cell.startswith(("=", "@", "+"))]
            assert signs == []
            assert [cell for cell in cells if cell.startswith("'=cmd()")]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs LaTeX")
def test_hostile_tables_can_be_set(tmp_path: Path, hostile_record: dict[str, Any]) -> None:
    write_tables(grouped([hostile_record]), tmp_path)
    (tmp_path / "all.tex").write_text(
        "\\documentclass{article}\\usepackage{booktabs}\\begin{document}"
        "\\input{overview-1}\\input{readouts-1}\\end{document}"
    )
    call = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    subprocess.run(call, cwd=tmp_path, check=True, capture_output=True, timeout=120)


def test_sections_come_with_tuning_last(make_record: Make) -> None:
    records = [make_record(split="validation"), make_record(data="zoo"), make_record()]
    places = by_place(grouped(records))
    assert [(g[0].data, g[0].split) for g in places] == [
        ("mnist", "test"),
        ("zoo", "test"),
        ("mnist", "validation"),
    ]
    only = make_record(readout="head", readouts=["head"])
    assert table_names(1, grouped([only])) == [("Overview", "overview-2")]
