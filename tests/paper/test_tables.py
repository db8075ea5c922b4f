"""Our runs in the cells of the paper's tables, and the notes on where they differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.errors import OcilError
from ocil.paper.cells import Row, cells
from ocil.paper.notes import check_used, read_notes
from ocil.paper.tables import paper_rows, paper_tables
from ocil.report.runs import Run

Make = Callable[..., dict[str, Any]]
NOTE = """
[[note]]
method = "otc"
data = "mnist"
memory = 500
metric = "accuracy"
sentence = "Because | of <this>."
records = ["table-mnist/a"]
readout = "head"
"""


def rows_of(*records: dict[str, Any], study: str = "table-mnist") -> list[Row]:
    """All rows of the paper's tables that hold a run."""
    found = paper_rows([Run(record, name=f"{study}/{n}") for n, record in enumerate(records)])
    return [row for members in found.values() for row in members if row.group]


def written(records: dict[str, dict[str, Any]], notes: str = "", root: Path | None = None) -> str:
    runs = as_runs(records)
    found = paper_rows(list(runs.values()))
    if root:
        (root / "notes.toml").write_text(notes)
    known = read_notes(root, runs) if root else []
    return "\n".join(paper_tables(found, known, runs, lambda cell: 5400.0))


def as_runs(records: dict[str, dict[str, Any]]) -> dict[str, Run]:
    return {name: Run(record, name=name) for name, record in records.items()}


def test_every_cell_of_the_tables_has_a_row() -> None:
    found = paper_rows([])
    assert [len(members) for members in found.values()] == [90, 12, 8, 24]
    assert not any(row.group or row.cut for members in found.values() for row in members)


def test_a_run_in_its_cell(make_run: Make) -> None:
    records = [make_run(accuracy=90.0 + seed, learned=99.0, seed=seed) for seed in (0, 1, 2)]
    (row,) = rows_of(*records)
    assert str(row.cell) == "otc, mnist, memory 500"
    assert str(row.ours("accuracy")) == "91.00 ± 1.00"
    assert str(row.ours("forgetting")) == "8.00 ± 1.00"
    assert row.difference("accuracy") == pytest.approx(91.0 - 93.6)
    assert row.label == "augment=none, updates=1"


@pytest.mark.parametrize(
    "change",
    [
        {"split": "validation"},
        {"settings": {"limit_per_class": 500}},
        {"settings": {"order": "joint"}},
        {"epochs": 5},
        {"tasks": 4},
        {"memory": 600},
        {"data": "fashion-mnist"},
        {"method": "er"},
    ],
)
def test_another_question_is_no_answer(make_run: Make, change: dict[str, Any]) -> None:
    assert rows_of(make_run())
    assert rows_of(make_run(**change)) == []


def test_only_studies_that_run_methods_as_they_are(make_run: Make) -> None:
    assert rows_of(make_run(), study="otc-mnist-plain")
    assert rows_of(make_run(), study="ladder-mnist") == []
    chosen = {"components": 4, "choice": "random"}
    ablation = make_run(data="cifar10", memory=1000, settings=chosen)
    (row,) = rows_of(ablation, study="table-memory-choice")
    assert str(row.cell) == "otc, cifar10, memory 1000, choice=random, components=4"
    (row,) = rows_of(ablation, study="table-accuracy")
    assert str(row.cell) == "otc, cifar10, memory 1000"


def test_several_passes_are_the_offline_table(make_run: Make) -> None:
    record = make_run("derpp", 66.0, data="cifar10", memory=200, epochs=50)
    (row,) = rows_of(record, study="table-offline")
    assert str(row.cell.printed("accuracy")) == "64.88"
    assert row.label == "augment=none, epochs=50, updates=1"
    assert row.difference("accuracy") == pytest.approx(66.0 - 64.88)  # one run, no deviation


def test_configurations_are_rows_that_say_what_they_are(make_run: Make) -> None:
    plain = make_run()
    other = make_run(settings={"updates": 2, "lr": 0.1, "precision": "bfloat16", "preset": "paper"})
    labels = sorted(row.label for row in rows_of(plain, other))
    assert labels == [
        "augment=none, updates=1",
        "preset paper, augment=none, precision=bfloat16, updates=2",
    ]
    third = make_run(settings={"updates": 2, "lr": 0.2, "precision": "bfloat16", "preset": "paper"})
    labels = sorted(row.label for row in rows_of(plain, other, third))
    assert labels[1:] == [
        "preset paper, augment=none, lr=0.1, precision=bfloat16, updates=2",
        "preset paper, augment=none, lr=0.2, precision=bfloat16, updates=2",
    ]


def test_within_the_deviation_there_is_no_difference(make_run: Make) -> None:
    for accuracy, differs in ((93.4, False), (93.9, False), (94.0, True), (93.2, True)):
        (row,) = rows_of(make_run(accuracy=accuracy))
        assert (row.difference("accuracy") is not None) == differs
        assert Row(cells(["Table 4"])[0]).difference("accuracy") is None


def test_what_was_not_run_says_so_with_its_time(make_run: Make) -> None:
    text = written({"table-mnist/a": make_run()})
    assert "| 500 | gsa | not run | – | – | 92.7 ± 0.3 | – | 3.3 ± 0.2 | 0 | ≈ 1.5 |" in text
    ours = "augment=none, updates=1 | head | 90.00 | 93.6 ± 0.3 | 0.00 | 2.4 ± 0.4 | 1 | – |"
    assert f"| 500 | otc | {ours}" in text
    assert "- otc, mnist, memory 500 (augment=none, updates=1): accuracy -3.60. Cause not" in text
    assert "ocil run otc --data mnist --seed 0  # seed 0\n" in text
    cut = make_run("gsa", settings={"limit_per_class": 500})
    text = written({"table-mnist/a": cut})
    assert "| 1500 | gsa | not run in full, only on a cut |" in text
    assert "Cause not" not in text


def test_a_note_explains_a_difference(make_run: Make, tmp_path: Path) -> None:
    text = written({"table-mnist/a": make_run(learned=95.0)}, NOTE, tmp_path)
    assert (
        "accuracy -3.60. Because \\| of &lt;this&gt;. "
        "([table-mnist/a](table-mnist/a/record.json); "
        "read-out head: accuracy 90.00, forgetting 5.00, learning 94.00)\n" in text
    )
    assert "forgetting +2.60. Cause not established." in text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("table-mnist/a", "table-mnist/b"), "cites no record: 'table-mnist/b'. Did you mean"),
        (('"head"', '"tail"'), "read-out 'tail', which the record table-mnist/a lacks"),
        (("memory =", "memroy ="), "Unknown key 'memroy' in note 1 .* Did you mean 'memory'"),
        (("memory = 500", 'memory = "500"'), "The key 'memory' in note 1 .* wrong type"),
        (('method = "otc"\n', ""), "Note 1 .* lacks method"),
        (('["table-mnist/a"]', "[]"), "Note 1 .* lacks records"),
        (("[[note]]", "[note]"), r"may hold \[\[note\]\] tables only"),
        (("[[note]]", "[[remark]]"), r"may hold \[\[note\]\] tables only"),
        (("[[note]]", "[[note"), "not valid TOML"),
    ],
)
def test_a_wrong_note_is_refused(
    make_run: Make, tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    (tmp_path / "notes.toml").write_text(NOTE.replace(*change))
    with pytest.raises(OcilError, match=complaint):
        read_notes(tmp_path, as_runs({"table-mnist/a": make_run()}))


@pytest.mark.parametrize(
    "change",
    [
        ("memory = 500", "memory = 1500"),
        ('"accuracy"', '"forgetting"'),
        ("readout", "settings = { updates = 2 }\nreadout"),
    ],
)
def test_a_note_on_no_difference_is_refused(
    make_run: Make, tmp_path: Path, change: tuple[str, str]
) -> None:
    record = make_run(accuracy=90.0, learned=92.5)  # forgets 2.5, the paper 2.4 ± 0.4
    for note, fine in ((NOTE, True), (NOTE.replace(*change), False)):
        (tmp_path / "notes.toml").write_text(note)
        notes = read_notes(tmp_path, as_runs({"table-mnist/a": record}))
        if fine:
            check_used(notes, rows_of(record), tmp_path)
        else:
            with pytest.raises(OcilError, match=r"Note 1 .* explains a difference .* not there"):
                check_used(notes, rows_of(record), tmp_path)
