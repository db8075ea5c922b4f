"""The tables of the study own-streams, and the README's copy of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ocil.paper.summary import pages
from ocil.report.own_streams import FOLDER, Trials, page, read, read_file

ACCURACIES = {"classifier": [90.0, 91.0, 92.0], "slda-raw": [93.0, 94.2, 94.8],
              "slda-fixed": [80.0, 80.0, 80.0], "offline": [97.0, 97.0, 97.0]}  # fmt: skip


def record(method: str, seed: int, accuracy: float, **more: Any) -> dict[str, Any]:
    base = {"data": "wine", "part": "seen before", "order": "classes", "split": "test"}
    base |= {"method": method, "seed": seed, "accuracy": accuracy, "memory": 64, "learned": 129}
    base |= {"asked": 15, "bytes_held": 10**6, "seconds": 1.5, "command": "ocil study own-streams"}
    return base | {"calibration_error": None, "score": None} | more


def records(**more: Any) -> list[dict[str, Any]]:
    return [record(m, s, a, **more) for m, own in ACCURACIES.items() for s, a in enumerate(own)]


def write(root: Path, found: Sequence[dict[str, Any]]) -> None:
    (root / FOLDER).mkdir(parents=True)
    lines = "".join(f"{json.dumps(each)}\n" for each in found)
    (root / FOLDER / "wine.jsonl").write_text(lines)


def test_a_row_shows_each_method_on_its_better_features() -> None:
    table = Trials(records(), "test", "classes").table()
    assert table.columns[4:] == ("Classifier()", "slda", "offline logistic")
    assert table.rows == [["wine", "seen before", 129, 64, "91.0", "94.0", "97.0"]]
    assert type(table.rows[0][5]).__name__ == "Strong"  # offline does not compete


def test_what_is_settled_below_the_best_rival_is_named() -> None:
    said = list(Trials(records(), "test", "classes").findings())
    assert "is on wine (-3.00 against slda-raw, -3.50 to -2.50) settled below" in said[0]
    assert "`Classifier()` 91.00, the best rival (slda-raw) 94.00" in said[1]
    near = [r | {"accuracy": r["accuracy"] - 2.5 * (r["method"] == "slda-raw")} for r in records()]
    assert "is on no stream settled" in next(Trials(near, "test", "classes").findings())
    few = [r for r in records() if r["seed"] < 2]
    assert "0 of 1 streams have the 3 seeds" in next(Trials(few, "test", "classes").findings())


def test_the_worst_calibration_and_the_worst_score_are_told() -> None:
    found = records(calibration_error=4.0, score=95.0)
    said = list(Trials(found, "test", "classes").findings())
    assert said[2:] == ["Class by class, largest calibration error: 4.00 (wine).",
                        "Class by class, largest distance of its score_ from the accuracy: 4.00 "
                        "(wine)."]  # fmt: skip


def test_the_page_has_splits_orders_and_commands_apart(tmp_path: Path) -> None:
    held = records(split="validation", order="shuffled")
    shown = page(tmp_path, [*records(), *held])
    test, tuning = shown.split("## Held-out parts of training data")
    assert "Class by class:" in test
    assert "Shuffled:" in tuning
    assert "ocil study own-streams --set data=wine --set validate=true" in tuning
    assert "| slda-raw | 94.00 ± 0.92 | -3.00 (-3.50 to -2.50) | – | – | 1 | 1.5 | 0-2 |" in test


@pytest.mark.parametrize(
    "line", ["{", "[]", "7", '{"data": 3}', json.dumps(record("slda-raw", 0, 1.0) | {"part": "x"}),
             json.dumps(record("slda-raw", 0, 1.0) | {"score": "high"})],
)  # fmt: skip
def test_a_line_that_is_no_record_is_left_out(
    tmp_path: Path, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "wine.jsonl"
    file.write_text(f"{line}\n{json.dumps(record('slda-raw', 0, 50.0))}\n")
    with caplog.at_level(logging.WARNING):
        assert len(read_file(file)) == 1
    assert "line 1 of" in caplog.text


def test_the_readme_has_the_table_where_it_has_markers(tmp_path: Path) -> None:
    root, readme = tmp_path / "results", tmp_path / "README.md"
    write(root, records())
    assert len(read(root)) == 12
    readme.write_text("# Name\n\n<!-- own-streams -->\nstale\n<!-- /own-streams -->\n\nend\n")
    found = pages(root)
    assert "stale" not in found[readme.resolve()]
    assert "| wine | seen before | 129 | 64 | 91.0 | **94.0** | 97.0 |" in found[readme.resolve()]
    assert "up to 3 seeds" in found[readme.resolve()]
    assert found[readme.resolve()].endswith("<!-- /own-streams -->\n\nend\n")
    assert "own-streams/RESULTS.md" in found[root / "RESULTS.md"]
    readme.write_text("no place for it")
    assert pages(root)[readme.resolve()] == "no place for it"
