"""RESULTS.md from a folder of records."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.errors import OcilError
from ocil.report.results import results_markdown

Make = Callable[..., dict[str, Any]]
HOSTILE = "<script>alert(1)</script>|$x^2$ [red]\x1b[31m`_*=cmd()\n@a"
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
    assert "| er |  | ema-head | 85.25 ± 0.50 | 15.00 ± 0.00 | 95.25 ± 0.50 | 4 | 74 |" in written
    assert "| er |  | 80.25 ± 0.50 | **85.25 ± 0.50** |\n" in written
    # settings that the record has and today's preset would make otherwise are named
    command = "ocil run er --data mnist --memory 500 --seed 0 --augment none --lr 0.0005"
    assert f"{command}  # seeds 0-2, 4\n" in written
    assert "| joint |  | ema-head | 85.00 | – | – | 1 | 74 |" in written
    assert "`make results`" in written


def test_the_floor_stands_in_every_table_of_its_data(results: Path) -> None:
    spine = results_markdown(results).split("## spine")[1]
    assert spine.count("| finetune |") == 2 * 2  # outcome and read-outs
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


@pytest.fixture
def paper(tmp_path: Path, make_run: Make, write_record: Write) -> Path:
    """OTC with four and one component on MNIST; four is a cell of the paper, one an ablation."""
    for seed, lead in enumerate((1.0, 1.2, 1.1)):
        record = make_run(accuracy=90.0 + lead, seed=seed, settings={"components": 4})
        write_record(tmp_path / "table-mnist" / f"four{seed}", record)
        record = make_run(accuracy=90.0, seed=seed, settings={"components": 1})
        write_record(tmp_path / "ladder-mnist" / f"one{seed}", record)
    return tmp_path


def test_the_paper_comes_first_where_a_run_answers_to_it(paper: Path) -> None:
    written = results_markdown(paper)
    assert re.findall(r"^##+ .*", written, re.MULTILINE) == [
        "## The paper's tables",
        "### Tables 1 and 2: accuracy and forgetting",
        "#### cifar10",
        "#### cifar100",
        "#### tiny-imagenet",
        "### Table 3: memory chosen by the centroids or at random",
        "### Table 4: MNIST",
        "### Table 5: several passes over each task",
        "#### cifar10",
        "#### cifar100",
        "## The paper's claims",
        "### The comparisons behind the verdicts",
        "## ladder-mnist",
        "### mnist, memory 500",
        "## table-mnist",
        "### mnist, memory 500",
    ]
    assert "| 500 | otc | augment=none, steps=1 | head | 91.10 ± 0.10 | 93.6 ± 0.3 |" in written
    assert "Table 3 | **confirmed** | holds in 4 of 4 |" in written
    assert "| confirmed | ladder-mnist (3), table-mnist (3) |" in written
    assert results_markdown(paper) == written


def test_new_records_change_the_verdict(paper: Path, make_run: Make, write_record: Write) -> None:
    for seed in range(3):
        worse = make_run(accuracy=80.0 + seed / 10, seed=seed, settings={"components": 4})
        write_record(paper / "table-mnist" / f"four{seed}", worse)
    assert "Table 3 | **refuted** | holds in 4 of 4 |" in results_markdown(paper)


def test_notes_are_read_and_checked(paper: Path) -> None:
    note = """
    [[note]]
    method = "otc"
    data = "mnist"
    memory = MEMORY
    sentence = "Fewer steps."
    records = ["ladder-mnist/one0"]
    """
    (paper / "notes.toml").write_text(note.replace("MEMORY", "500"))
    link = "[ladder-mnist/one0](ladder-mnist/one0/record.json)"
    assert f"accuracy -2.50. Fewer steps. ({link})\n" in results_markdown(paper)
    (paper / "notes.toml").write_text(note.replace("MEMORY", "1500"))
    with pytest.raises(OcilError, match="explains a difference"):
        results_markdown(paper)


def test_results_load_no_torch(paper: Path) -> None:
    code = (
        "import sys\n"
        "from ocil.report.results import results_markdown\n"
        "assert 'claims' in results_markdown(sys.argv[1])\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(paper)]).returncode == 0


@pytest.mark.parametrize("value", [HOSTILE, [1, {}], {"above": 1}, None, True, -1, 1e300])
def test_odd_settings_of_a_paper_run_show_as_text(
    tmp_path: Path, make_run: Make, write_record: Write, value: Any
) -> None:
    plain = make_run()["settings"]
    odd = dict.fromkeys(
        [*plain, "components", "choice", "epochs", "limit_per_class", HOSTILE], value
    )
    for number, settings in enumerate((plain, plain | {"lr": value}, odd, plain | {"x": value})):
        record = make_run(settings=settings, epochs=None, command=f"ocil run {HOSTILE}")
        write_record(tmp_path / "table-mnist" / f"job{number}", record)
    outside = re.sub(r"^```sh\n.*?^```$", "", results_markdown(tmp_path), flags=re.M | re.S)
    assert "The paper's claims" in outside
    assert "<" not in outside
    assert not re.search(r"^=cmd|^@a", outside, re.MULTILINE)
