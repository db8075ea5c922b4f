"""Records are hostile until checked; what is wrong is said in one sentence with a remedy."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ocil.errors import OcilError
from ocil.run import reading

EVALUATION = {
    "step": 3,
    "task": 0,
    "readout": "head",
    "images": "all",
    "correct": [1, 2],
    "total": [2, 2],
}
RECORD: dict[str, Any] = {
    "schema": 1,
    "method": "er",
    "data": "digits",
    "split": "test",
    "seed": 0,
    "settings": {"lr": 0.1},
    "command": "ocil run er",
    "readout": "head",
    "readouts": ["head"],
    "class_names": ["a", "b"],
    "tasks": [[0, 1]],
    "evaluations": [EVALUATION],
}


def write(folder: Path, record: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "record.json"
    file.write_text(record if isinstance(record, str) else json.dumps(record))
    return file


def test_a_record_is_read_by_its_folder_and_by_its_name(tmp_path: Path) -> None:
    file = write(tmp_path, RECORD)
    found = reading.read_record(tmp_path)
    assert found == reading.read_record(str(file))
    kept = {key: value for key, value in found.items() if key not in ("settings", "command")}
    assert kept == {key: RECORD[key] for key in kept}
    assert found["settings"].items() >= RECORD["settings"].items()
    assert "--lr 0.1" in found["command"]  # made for the settings, whatever it was


def test_optional_keys_may_be_null(tmp_path: Path) -> None:
    record = RECORD | {"memory": None, "study": None, "commit": None, "dirty": None, "new": [1]}
    found = reading.read_record(write(tmp_path, record))
    assert {key: found[key] for key in ("memory", "study", "commit", "dirty", "new")} == {
        "memory": None,
        "study": None,
        "commit": None,
        "dirty": None,
        "new": [1],
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "damaged"),
        (json.dumps(RECORD)[:-20], "damaged"),
        ("[" * 100_000, "damaged"),
        (json.dumps(RECORD).replace("0.1", "NaN"), "damaged"),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin1") * 3, "damaged"),
        ("[]", "JSON object"),
        ("{}", "no schema number"),
        (json.dumps(RECORD | {"schema": True}), "no schema number"),
        (json.dumps(RECORD | {"schema": 2}), r"schema 2.*up to 1; upgrade ocil"),
    ],
)
def test_a_file_that_is_no_record_of_ours(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(OcilError, match=said):
        reading.read_record(write(tmp_path, content))


@pytest.mark.parametrize("key", sorted(set(RECORD) - {"schema"}))
def test_a_missing_or_wrong_key_is_named(tmp_path: Path, key: str) -> None:
    lacking = {k: v for k, v in RECORD.items() if k != key}
    with pytest.raises(OcilError, match=f"lacks the key '{key}'; remove it and run"):
        reading.read_record(write(tmp_path, lacking))
    with pytest.raises(OcilError, match=f"wrong value for the key '{key}'"):
        reading.read_record(write(tmp_path, RECORD | {key: 1.5}))


@pytest.mark.parametrize(
    "change",
    [
        {"split": "train"},
        {"seed": True},
        {"memory": "500"},
        {"seconds": "1"},
        {"versions": {"torch": 2}},
        {"command": "x" * 10_001},
        {"readout": "ncm"},
        {"readouts": ["head", 1]},
        {"class_names": ["a", 1]},
        {"class_names": []},
        {"tasks": []},
        {"tasks": [[0, 2]]},
        {"tasks": [[0, -1]]},
        {"tasks": [[0, True]]},
        {"tasks": [7]},
        {"tasks": [[0]] * 1001},
    ],
)
def test_values_out_of_range_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    with pytest.raises(OcilError, match=r"record\.json .*run its command again\.$"):
        reading.read_record(write(tmp_path, RECORD | change))


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": None},
        {"task": 1},
        {"task": True},
        {"readout": "ncm"},
        {"images": "some"},
        {"correct": [1]},
        {"correct": [3, 0]},
        {"correct": [-1, 0]},
        {"correct": [0.5, 0]},
        {"correct": {"0": 1}},
        {"total": [2**60, 2]},
    ],
)
def test_a_wrong_evaluation_is_named_by_its_number(tmp_path: Path, change: dict[str, Any]) -> None:
    record = copy.deepcopy(RECORD)
    record["evaluations"].append(EVALUATION | change)
    with pytest.raises(OcilError, match="wrong evaluation number 1"):
        reading.read_record(write(tmp_path, record))


def test_an_infinite_number_is_refused(tmp_path: Path) -> None:
    content = json.dumps(RECORD | {"seconds": 7.25}).replace("7.25", "1e999")
    with pytest.raises(OcilError, match="'seconds'"):
        reading.read_record(write(tmp_path, content))


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_BYTES", 10)
    with pytest.raises(OcilError, match="at most 10"):
        reading.read_record(write(tmp_path, RECORD))


def test_a_run_without_a_record_says_how_to_finish_it(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{}")
    with pytest.raises(OcilError, match="ocil resume"):
        reading.read_record(tmp_path)


def test_records_are_found_sorted_and_broken_ones_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("b/2", "a", "b/1"):
        write(tmp_path / name, RECORD)
    write(tmp_path / "broken", "{")
    with caplog.at_level(logging.WARNING):
        found = reading.find_records(tmp_path)
    assert [path.parent.relative_to(tmp_path).as_posix() for path, _ in found] == [
        "a",
        "b/1",
        "b/2",
    ]
    assert "broken" in caplog.text
    with pytest.raises(OcilError, match="no folder"):
        reading.find_records(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("settings", "stored", "shown"),
    [
        ({"fused": False, "preserve": 1.0, "updates": 1}, 1, 2),  # counted without that step
        ({"fused": False, "preserve": 1.0, "updates": 1}, 2, 2),
        ({"fused": False, "preserve": 0.0, "updates": 1}, 1, 1),
        ({"fused": True, "preserve": 1.0, "updates": 2}, 2, 2),
        ({"fused": False, "preserve": "x", "updates": 1}, 1, 1),
        ({"updates": 1}, 1, 1),
    ],
)
def test_older_records_count_the_step_of_dynamic_preservation(
    tmp_path: Path, settings: Any, stored: int, shown: int
) -> None:
    record = RECORD | {"method": "otc", "settings": settings, "gradient_steps_per_batch": stored}
    assert reading.read_record(write(tmp_path, record))["gradient_steps_per_batch"] == shown
    other = record | {"method": "er"}
    assert reading.read_record(write(tmp_path, other))["gradient_steps_per_batch"] == stored


@pytest.mark.parametrize("key", ["seed", "seconds", "memory", "bytes_held"])
def test_an_integer_beyond_64_bits_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(OcilError, match=f"wrong value for the key '{key}'"):
        reading.read_record(write(tmp_path, RECORD | {key: 10**400}))


def test_only_a_run_that_can_be_continued_is_said_to(tmp_path: Path) -> None:
    with pytest.raises(OcilError) as caught:
        reading.read_record(tmp_path)
    assert "ocil resume" not in str(caught.value)
    assert "ocil run" in str(caught.value)


def test_an_evaluation_before_the_first_step_is_one() -> None:
    assert reading.evaluation_is_sound(EVALUATION | {"step": 0}, RECORD)
    assert not reading.evaluation_is_sound(EVALUATION | {"step": -1}, RECORD)


@pytest.mark.parametrize(
    ("value", "fits"), [(2**63 - 1, True), (2**63, False), (-(2**63), True), (-(2**63) - 1, False)]
)
def test_whole_numbers_have_64_bits(value: int, fits: bool) -> None:
    assert reading.is_json(value, int) == fits


@pytest.mark.parametrize("schema", [0, -1])
def test_a_schema_below_one_is_none(tmp_path: Path, schema: int) -> None:
    with pytest.raises(OcilError, match="has no schema number"):
        reading.read_record(write(tmp_path, RECORD | {"schema": schema}))
