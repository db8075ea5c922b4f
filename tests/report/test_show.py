"""One record on the terminal."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console

from ocil.report import show

Make = Callable[..., dict[str, Any]]


def printed(record: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    for part in show.show(record):
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_matrix_has_tasks_by_class_names(make_record: Make) -> None:
    table = show.matrix_table(make_record())
    assert table.columns == ("after", "one, zero", "two, three", "four, five")
    assert table.rows == [
        ["task 1", "95.00", "", ""],
        ["task 2", "85.00", "95.00", ""],
        ["task 3", "75.00", "85.00", "95.00"],
    ]


def test_metrics_of_every_readout(make_record: Make) -> None:
    rows = {row[0]: row[1:] for row in show.metrics_table(make_record()).rows}
    columns = show.metrics_table(make_record()).columns
    accuracy, backward = columns.index("accuracy") - 1, columns.index("backward") - 1
    assert [row[accuracy] for row in rows.values()] == ["80.00", "85.00"]
    assert [row[backward] for row in rows.values()] == ["-15.00", "-15.00"]


def test_a_joint_record_shows_what_it_has(make_record: Make) -> None:
    record = make_record("joint", joint=True, memory=None, commit=None)
    assert show.matrix_table(record).rows[0] == ["task 1", "–", "", ""]
    assert show.matrix_table(record).rows[2] == ["task 3", "75.00", "85.00", "95.00"]
    assert "forgetting" in printed(record)


def test_many_tasks_become_lines(make_record: Make) -> None:
    table = show.matrix_table(make_record(tasks=[[0]] * 13))
    assert table.columns == ("task", "classes", "when learned", "at the end")
    assert len(table.rows) == 13


def test_facts_leave_out_what_is_not_known(make_record: Make) -> None:
    known = {row[0] for row in show.facts_table(make_record()).rows}
    assert {"memory", "time", "commit", "command"} <= known
    bare = {k: v for k, v in make_record().items() if k not in ("seconds", "versions", "commit")}
    assert not {row[0] for row in show.facts_table(bare).rows} & {"time", "versions", "commit"}


def test_hostile_text_is_not_obeyed(hostile_record: dict[str, Any]) -> None:
    shown = printed(hostile_record)
    assert "\x1b[31m" not in shown
    assert "[red]" in shown


def test_a_narrow_terminal_gets_every_column_in_blocks(make_record: Make) -> None:
    names = [f"a class with a long name {i}" for i in range(6)]
    for width in (40, 60, 80, 200):
        console = Console(file=io.StringIO(), width=width)
        for part in show.show(make_record(class_names=names, seconds=12345.6)):
            console.print(part)
        shown = console.file.getvalue()  # type: ignore[attr-defined]
        assert max(map(len, shown.splitlines())) <= width
        lines = [line.strip() for line in shown.splitlines()]
        assert "…" not in shown.replace("name…", "").replace("a class with a long nam…", "")
        for cell in ("75.00", "85.00", "95.00", "backward", "forgetting", "-15.00"):
            assert cell in shown
        blocks = [line for line in lines if line.startswith("after")]
        assert sum(line.count("a class with a long nam") for line in blocks) == 3
        assert len([line for line in lines if line.startswith("task 3")]) == len(blocks)
        assert (len(blocks) == 1) == (width > 80)


def test_a_long_command_is_shown_whole(make_record: Make) -> None:
    command = "ocil run er " + " ".join(f"--setting-{i} {i}" for i in range(40)) + " --last 1"
    console = Console(file=io.StringIO(), width=2000)
    for part in show.show(make_record(command=command)):
        console.print(part)
    assert command in console.file.getvalue()  # type: ignore[attr-defined]
