"""What `ocil show` of many runs and `ocil report` say on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ocil.commands.results import overviews
from ocil.report.runs import Run

Make = Callable[..., dict[str, Any]]


def test_defaults_of_a_method_are_not_told_beside_its_name(make_record: Make) -> None:
    er = make_record("er", settings={"lr": 0.5, "ema": 0.9})
    otc = make_record("otc", settings={"lr": 0.1, "ema": 0.99})
    otc["command"] += " --ema 0.99"
    [blocks] = overviews([Run(er), Run(otc)])
    place = blocks.table.columns.index("settings")
    assert [row[place] for row in blocks.table.rows] == ["", "ema=0.99"]


def test_a_report_says_the_finding(
    ocil: Callable[..., Any], make_record: Make, write_record: Callable[..., Path], tmp_path: Path
) -> None:
    for method, shift in (("er", 0), ("otc", 3)):
        write_record(tmp_path / "runs" / method, make_record(method, shift=shift))
    said = ocil("report", tmp_path / "runs", "--out", tmp_path / "page")
    assert said.code == 0, said.err
    assert "otc leads with" in said.out
    assert "Page: " in said.out
