"""RESULTS.md from a folder of records."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.errors import OcilError
from ocil.report.results import results_markdown

Make = Callable[..., dict[str, Any]]
Write = Callable[[Path, dict[str, Any]], Path]


@pytest.fixture
def results(tmp_path: Path, make_record: Make, write_record: Write) -> Path:
    for seed in (0, 1, 2, 4):
        write_record(tmp_path / "spine" / f"er{seed}", make_record(seed=seed, shift=seed % 2))
    write_record(tmp_path / "spine" / "big", make_record(memory=1500))
    write_record(tmp_path / "spine" / "floor", make_record("finetune", memory=None))
    write_record(tmp_path / "spine" / "tune", make_record(split="validation"))
    write_record(tmp_path / "other" / "one", make_record("joint", joint=True))
    write_record(tmp_path / "loose", make_record(data="digits"))
    return tmp_path


def test_sections_tables_and_commands(results: Path) -> None:
    written = results_markdown(results)
    assert re.findall(r"^##+ .*", written, re.MULTILINE) == [
        "## single runs",
        "### digits, memory 500",
        "## other",
        "### mnist, memory 500",
        "## spine",
        "### mnist, memory 500",
        "### mnist, memory 1500",
        "### Tuning, on images held out of the training set: mnist, memory 500",
    ]
    # accuracies 80, 81, 80, 80: mean 80.25, deviation 0.5
    assert "| er |  | 80.25 ± 0.50 | **85.25 ± 0.50** | 15.00 ± 0.00 | 4 | 74 |" in written
    assert "ocil run er --data mnist --seed 0  # seeds 0-2, 4\n" in written
    assert "| joint |  | 80.00 | **85.00** | – | 1 | 74 |" in written
    assert "`make results`" in written


def test_the_floor_stands_in_every_table_of_its_data(results: Path) -> None:
    spine = results_markdown(results).split("## spine")[1]
    assert spine.count("| finetune |") == 2
    assert "finetune" not in spine.split("Tuning")[1]


def test_a_readme_introduces_its_study(results: Path) -> None:
    (results / "spine" / "README.md").write_text(
        "# The spine\n\nER on MNIST.\n\n## Why\n\n```sh\n# a comment\n```\n"
    )
    written = results_markdown(results)
    assert "\n## The spine\n\nER on MNIST.\n\n### Why\n\n```sh\n# a comment\n```\n" in written
    (results / "spine" / "README.md").write_bytes(b"\xff\xfe")
    with pytest.raises(OcilError, match="UTF-8"):
        results_markdown(results)


def test_the_output_is_the_same_every_time(results: Path) -> None:
    first = results_markdown(results)
    assert results_markdown(str(results)) == first
    assert str(results) not in first


def test_no_records_and_broken_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make_record: Make, write_record: Write
) -> None:
    assert "no records yet" in results_markdown(tmp_path)
    write_record(tmp_path / "s" / "new", make_record(schema=2))
    with caplog.at_level(logging.WARNING):
        assert "no records yet" in results_markdown(tmp_path)
    assert "upgrade ocil" in caplog.text


def test_hostile_text_and_folder_names_show_as_text(
    tmp_path: Path, hostile_record: dict[str, Any], write_record: Write
) -> None:
    write_record(tmp_path / "<b>study|`" / "job", hostile_record)
    hostile_record["command"] = "ocil ```\n# Owned"
    write_record(tmp_path / "t" / "job", hostile_record)
    written = results_markdown(tmp_path)
    assert "## &lt;b&gt;study\\|\\`" in written
    outside = re.sub(r"^(````*)sh\n.*?^\1$", "", written, flags=re.MULTILINE | re.DOTALL)
    assert "<" not in outside
    assert "script" not in outside.replace("&lt;script&gt;", "").replace("&lt;/script&gt;", "")
    assert not re.search(r"^# Owned", written, re.MULTILINE)
    assert "````sh\n" in written
