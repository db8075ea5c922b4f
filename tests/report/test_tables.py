"""The overview and its rendering; hostile text stays text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console

from ocil.report import tables
from ocil.report.groups import Group, group
from ocil.report.render import Strong, Table, to_csv, to_latex, to_markdown, to_rich
from ocil.report.runs import Run

Make = Callable[..., dict[str, Any]]


def test_overview_has_a_row_per_group_and_readout(make_record: Make) -> None:
    records = [make_record(seed=s, shift=s) for s in (0, 1)] + [make_record("joint", joint=True)]
    rows = tables.overview(map(Run, records))
    assert [(r.group.method, r.readout, len(r.group.runs)) for r in rows] == [
        ("er", "head", 2),
        ("er", "ema-head", 2),
        ("joint", "head", 1),
        ("joint", "ema-head", 1),
    ]
    first = rows[0]
    assert str(first.summary("accuracy")) == "80.50 ± 0.71"  # 80, 81: sqrt(0.25 + 0.25)
    assert str(first.summary("forgetting")) == "15.00 ± 0.00"
    assert first.group.seeds == (0, 1)
    seconds = first.group.fact("seconds")
    assert seconds is not None
    assert seconds.mean == 2.0  # 1.5, 2.5
    assert [r.reported for r in rows] == [False, True, False, True]


def grouped(records: Iterable[dict[str, Any]]) -> list[Group]:
    return group(map(Run, records))


def test_overview_for_people(make_record: Make) -> None:
    table = tables.overview_table(
        tables.overview(map(Run, [make_record(), make_record("joint", joint=True)]))
    )
    assert table.columns == (
        "method", "memory", "read-out", "accuracy", "forgetting", "runs", "seconds",
    )  # fmt: skip
    assert table.rows[0] == ["er", "500", "head", "80.00", "15.00", 1, "1.5"]
    assert table.rows[3][4] == "–"
    both = tables.overview_table(
        tables.overview(map(Run, [make_record(), make_record(split="validation")])), full=True
    )
    assert [row[1] for row in both.rows[::2]] == ["mnist", "mnist (validation)"]
    assert {"anytime", "worst case"} < {*both.columns}


def test_overview_for_programs_keeps_numbers(make_record: Make) -> None:
    written = to_csv(tables.overview_numbers(tables.overview([Run(make_record(memory=None))])))
    [head, ema] = csv.DictReader(io.StringIO(written))
    assert float(head["accuracy_mean"]) == 80.0
    assert head["accuracy_std"] == ""
    assert head["memory"] == ""
    assert ema["readout"] == "ema-head"
    assert ema["command"] == "ocil run er --data mnist --seed 0"


def test_missing_optional_keys_show_as_not_measured(make_record: Make) -> None:
    optional = ("seconds", "backbone_images_per_step", "bytes_held", "gradient_steps_per_batch")
    bare = {k: v for k, v in make_record().items() if k not in (*optional, "preset", "memory")}
    [row, _] = tables.overview([Run(bare)])
    assert row.group.fact("seconds") is None
    assert tables.overview_table([row]).rows[0][-1] == "–"
    assert tables.costs(row.group) == ["–"] * 4


def test_readouts_stand_side_by_side(make_record: Make) -> None:
    only_head = make_record("finetune", memory=None, readout="head", readouts=["head"])
    only_head["evaluations"] = [e for e in only_head["evaluations"] if e["readout"] == "head"]
    records = [*(make_record(seed=s, shift=s) for s in (0, 1)), only_head]
    table = tables.side_by_side(grouped(records))
    assert table.columns[2:] == ("head", "ema-head")
    er, floor = table.rows
    assert er[2:] == ["80.50 ± 0.71", "85.50 ± 0.71"]
    assert isinstance(er[3], Strong)
    assert not isinstance(er[2], Strong)
    assert floor[2:] == ["80.00", "–"]
    assert isinstance(floor[2], Strong)


def test_outcome_tells_what_runs_cost_and_counts_trials_once(make_record: Make) -> None:
    tried = [make_record(seed=100) | {"split": "validation", "job": job} for job in "aab"]
    other = make_record("scr") | {"split": "validation", "job": "c"}
    trials = tables.count_trials(map(Run, [*tried, other, make_record()]))
    assert trials == {("er", "mnist"): 2, ("scr", "mnist"): 1}
    record = make_record() | {
        "gradient_steps_per_batch": 2, "bytes_held": 4_242_200, "seconds": 389.9
    }  # fmt: skip
    table = tables.outcome(grouped([record]), trials)
    learning = grouped([record])[0].summary("learning")
    assert dict(zip(table.columns, table.rows[0], strict=True)) == {
        "method": "er", "settings": "", "read-out": "ema-head", "accuracy": "85.00",
        "forgetting": "15.00", "learning": str(learning), "runs": 1, "images/step": "74",
        "updates": "2", "MB held": "4.24", "seconds": "390", "trials": 2,
    }  # fmt: skip
    assert tables.outcome(grouped([record]), {}).rows[0][-1] == 0


def test_what_has_a_column_is_not_among_the_settings(make_record: Make) -> None:
    two = make_record(steps=2, settings={"updates": 2, "lr": 0.5}, readout="head")
    groups = grouped([make_record(), two])
    assert [row[1] for row in tables.outcome(groups, {}).rows] == ["lr=0.0005", "lr=0.5"]
    table = tables.side_by_side(groups)
    assert [row[1] for row in table.rows] == ["lr=0.0005, updates=1", "lr=0.5, updates=2"]
    assert [isinstance(cell, Strong) for cell in table.rows[1][2:]] == [True, False]


def test_negative_numbers_are_numbers_in_csv_but_text_is_defused() -> None:
    table = Table(("=a", "b"), [[-1.5, "-x"], [None, Strong("@y")]])
    assert to_csv(table) == "'=a,b\n-1.5,'-x\n,'@y\n"


def test_markdown_and_latex() -> None:
    table = Table(("method", "a|b"), [["x_y", Strong("1.00 ± 0.10")], ["[k]", None]])
    assert to_markdown(table) == (
        "| method | a\\|b |\n| :-- | --: |\n| x\\_y | **1.00 ± 0.10** |\n| \\[k\\] | – |\n"
    )
    assert to_latex(table) == (
        "\\begin{tabular}{lr}\n\\toprule\nmethod & a\\textbar{}b \\\\\n\\midrule\n"
        "x\\_y & \\textbf{1.00 \\ensuremath{\\pm} 0.10} \\\\\n{[}k{]} & -- \\\\\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


def test_hostile_text_stays_text_in_every_language(hostile_record: dict[str, Any]) -> None:
    other = hostile_record | {"settings": hostile_record["settings"] | {"augment": "=1|2"}}
    table = tables.overview_table(tables.overview(map(Run, [hostile_record, other])), full=True)
    markdown = to_markdown(table)
    assert markdown.count("\n") == 2 + len(table.rows)
    assert "<script" not in markdown
    borders = {line.replace("\\|", "").count("|") for line in markdown.splitlines()}
    assert borders == {len(table.columns) + 1}
    latex = to_latex(table)
    assert "\\x1b" not in latex
    assert "$" not in latex.replace("\\$", "")
    assert {line.replace("\\&", "").count("&") for line in latex.splitlines()[4:-2]} == {
        len(table.columns) - 1
    }
    console = Console(file=io.StringIO(), width=400, color_system="truecolor", force_terminal=True)
    console.print(to_rich(table, title="[red]title"))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "[red]title" in printed
    assert "\x1b[31m" not in printed
    assert "$x^2$ [red]\\x1b[31m" in printed
