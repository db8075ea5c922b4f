"""What RESULTS.md and PAPER.md say of the paper."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.errors import OcilError
from ocil.paper.summary import as_they_are, pages

Make = Callable[..., dict[str, Any]]
Write = Callable[[Path, dict[str, Any]], Path]
HOSTILE = "<script>alert(1)</script>|$x^2$ [red]\x1b[31m`_*=cmd()\n@a"


@pytest.fixture
def paper(tmp_path: Path, make_run: Make, write_record: Write) -> Path:
    """OTC with four and one component on MNIST; four is a cell of the paper, one an ablation."""
    for seed, lead in enumerate((1.0, 1.2, 1.1)):
        record = make_run(accuracy=90.0 + lead, seed=seed, settings={"components": 4})
        write_record(tmp_path / "table-mnist" / f"four{seed}", record)
        record = make_run(accuracy=90.0, seed=seed, settings={"components": 1})
        write_record(tmp_path / "ladder-mnist" / f"one{seed}", record)
    return tmp_path


def page(root: Path, name: str = "PAPER.md") -> str:
    return pages(root)[root / name]


def test_the_paper_has_a_page_where_a_run_answers_to_it(paper: Path) -> None:
    found = {path.relative_to(paper).as_posix() for path in pages(paper)}
    assert found == {
        "RESULTS.md", "PAPER.md", "table-mnist/RESULTS.md", "ladder-mnist/RESULTS.md",
    }  # fmt: skip
    written = page(paper)
    assert re.findall(r"^#+ .*", written, re.MULTILINE) == [
        "# The paper's numbers and claims",
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
    ]
    assert "| 500 | otc | augment=none, updates=1 | head | 91.10 ± 0.10 | 93.6 ± 0.3 |" in written
    assert "Table 3 | **confirmed** | holds in 4 of 4 |" in written
    assert "| confirmed | ladder-mnist (3), table-mnist (3) |" in written
    assert page(paper) == written


def test_results_tell_verdicts_cells_and_what_was_not_run(paper: Path) -> None:
    written = page(paper, "RESULTS.md")
    number = re.search(r"The paper's (\d+) claims: 1 confirmed, (\d+) untested", written)
    assert number and int(number[1]) == 1 + int(number[2])
    assert "- 1 configurations answer a cell" in written
    assert re.search(r"- 133 cells of the paper's tables were not run", written)
    assert "| 1 | Several adaptive centroids a class give a higher accuracy" in written
    assert len(written.splitlines()) <= 250
    ours = written.split("## mnist")[1].split("##")[0]
    assert ours.count("| otc |") == 1  # the ablation is on the page of its study


def test_new_records_change_the_verdict(paper: Path, make_run: Make, write_record: Write) -> None:
    for seed in range(3):
        worse = make_run(accuracy=80.0 + seed / 10, seed=seed, settings={"components": 4})
        write_record(paper / "table-mnist" / f"four{seed}", worse)
    assert "Table 3 | **refuted** | holds in 4 of 4 |" in page(paper)


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
    assert f"accuracy -2.50. Fewer steps. ({link})\n" in page(paper)
    (paper / "notes.toml").write_text(note.replace("MEMORY", "1500"))
    with pytest.raises(OcilError, match="explains a difference"):
        page(paper)


def test_results_load_no_torch(paper: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from ocil.paper.summary import pages\n"
        "assert 'claims' in pages(Path(sys.argv[1]))[Path(sys.argv[1]) / 'PAPER.md']\n"
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
    assert tmp_path / "PAPER.md" in pages(tmp_path)
    for written in pages(tmp_path).values():
        outside = re.sub(r"^```sh\n.*?^```$", "", written, flags=re.M | re.S)
        assert "<" not in outside
        assert not re.search(r"^=cmd|^@a", outside, re.MULTILINE)


def test_studies_that_vary_a_method_are_no_results_of_it() -> None:
    assert all(map(as_they_are, ("table-mnist", "er-mnist", "digits", "offline-small", "mine", "")))
    assert not any(map(as_they_are, ("ladder-mnist", "modality", "table-memory-choice")))
