"""RESULTS.md and the pages of studies, from a folder of records."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.errors import OcilError
from ocil.report import compare
from ocil.report.groups import group
from ocil.report.results import study_pages, summary_page
from ocil.report.runs import Run, read_runs

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


def pages(root: Path) -> dict[str, str]:
    found = study_pages(root, read_runs([root]))
    return {path.parent.name: content for path, content in found.items()}


def summary(root: Path) -> str:
    return summary_page(
        root, read_runs([root]), lambda study: study != "other", ["More."], ["## A"]
    )


def headings(page: str) -> list[str]:
    return re.findall(r"^#+ .*", page, re.MULTILINE)


def test_a_page_a_study_with_tables_and_commands(results: Path) -> None:
    found = pages(results)
    assert sorted(found) == ["other", "spine"]
    assert headings(found["spine"]) == [
        "# spine",
        "## mnist, memory 500",
        "## mnist, memory 1500",
        "## Tuning, on images held out of the training set: mnist, memory 500",
    ]
    # accuracies 80, 81, 80, 80: mean 80.25, deviation 0.5
    row = "| er |  | ema-head | 85.25 ± 0.50 | 15.00 ± 0.00 | 95.25 ± 0.50 | 4 | 74 |"
    assert row in found["spine"]
    assert "| er |  | 80.25 ± 0.50 | **85.25 ± 0.50** |\n" in found["spine"]
    # settings that the record has and today's preset would make otherwise are named
    command = "ocil run er --data mnist --memory 500 --seed 0 --augment none --lr 0.0005"
    assert f"{command}  # seeds 0-2, 4\n" in found["spine"]
    assert "| joint |  | ema-head | 85.00 | – | – | 1 | 74 |" in found["other"]
    assert "`make results`" in found["spine"]


def test_differences_that_three_common_seeds_give_stand_on_the_page(
    results: Path, make_record: Make, write_record: Write
) -> None:
    assert "Paired by seed" not in pages(results)["spine"]
    for seed, more in zip((0, 1, 2), (2, 3, 4), strict=True):
        record = make_record("otc", seed=seed, shift=seed % 2 + more)
        write_record(results / "spine" / f"otc{seed}", record)
    # mean 3, deviation 1, t 4.303 over the root of 3
    assert "| er | otc | 500 | **-3.00** | -5.48 to -0.52 | 0-2 |" in pages(results)["spine"]


def test_the_floor_stands_in_every_table_of_its_data(results: Path) -> None:
    spine = pages(results)["spine"]
    assert spine.count("| finetune |") == 2 * 2  # outcome and read-outs
    assert "finetune" not in spine.split("Tuning")[1]


def test_a_readme_introduces_its_study(results: Path) -> None:
    readme = results / "spine" / "README.md"
    readme.write_text("# The spine\n\nER on MNIST.\n\n## Why\n\n```sh\n# a comment\n```\n")
    found = pages(results)["spine"]
    assert found.startswith("# The spine\n\nER on MNIST.\n\n## Why\n\n```sh\n# a comment\n```\n")
    assert "- [The spine](spine/RESULTS.md): 7 runs\n" in summary(results)
    readme.write_text("No title.\n")
    assert pages(results)["spine"].startswith("# spine\n\nNo title.\n")
    readme.write_bytes(b"\xff\xfe")
    with pytest.raises(OcilError, match="UTF-8"):
        pages(results)
    readme.write_text("x" * 200_001)
    with pytest.raises(OcilError, match="at most 200000 fit"):
        pages(results)


def test_the_summary_ranks_methods_of_each_data_set(results: Path) -> None:
    written = summary(results)
    assert headings(written) == [
        "# Results", "## What was found", "## digits", "## mnist", "## A", "## Studies",
    ]  # fmt: skip
    assert "- Methods: 3, data sets: 2, runs: 9; 1 of them are trials" in written
    assert "- More.\n" in written
    mnist = written.split("## mnist")[1].split("## A")[0]
    rows = [line for line in mnist.splitlines() if line.startswith("| whole")]
    row = (
        "| 500 | er |  | 85.25 ± 0.50 | 84.45 to 86.05 | 15.00 ± 0.00 | 74 | 1 | 0.392 | 3.25 | 4 |"
    )
    assert rows[0] == f"| whole stream {row}"
    assert [line.split(" | ")[1:3] for line in rows] == [
        ["500", "er"], ["1500", "er"], ["–", "finetune"],
    ]  # fmt: skip
    assert "joint" not in mnist  # of a study that does not count
    assert "- [other](other/RESULTS.md): 1 run\n" in written


def test_the_output_is_the_same_every_time(results: Path) -> None:
    assert summary(results) == summary(results)
    assert pages(results) == pages(results)
    assert str(results) not in summary(results) + "".join(pages(results).values())


def test_no_records_and_broken_records(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make_record: Make, write_record: Write
) -> None:
    write_record(tmp_path / "s" / "new", make_record(schema=2))
    with caplog.at_level(logging.WARNING), pytest.raises(OcilError, match="There is no record"):
        read_runs([tmp_path])
    assert "upgrade ocil" in caplog.text


def test_hostile_text_and_folder_names_show_as_text(
    tmp_path: Path, hostile_record: dict[str, Any], write_record: Write
) -> None:
    write_record(tmp_path / "<b>study|`" / "job", hostile_record)
    hostile_record["command"] = "ocil ```\n# Owned"
    write_record(tmp_path / "t" / "job", hostile_record)
    for written in (summary(tmp_path), *pages(tmp_path).values()):
        outside = re.sub(r"^(````*)sh\n.*?^\1$", "", written, flags=re.MULTILINE | re.DOTALL)
        assert "<" not in outside
        assert "script" not in outside.replace("&lt;script&gt;", "").replace("&lt;/script&gt;", "")
        assert not re.search(r"^# Owned", written, re.MULTILINE)
    assert "(%3Cb%3Estudy%7C%60/RESULTS.md)" in summary(tmp_path)
    assert "````sh\n" in pages(tmp_path)["t"]


# ------------------------------------------------------------------ who leads


def test_the_leader_is_named_with_its_lead_and_how_sure_it_is(make_record: Make) -> None:
    records = [make_record("er", seed=s, shift=s - 4) for s in (0, 1, 2)]
    records += [make_record("otc", seed=s, shift=s) for s in (0, 1, 2)]
    records += [make_record("joint", seed=s, shift=4, settings={"order": "joint"}) for s in (0, 1)]
    said = compare.finding(group(map(Run, records)))
    assert said == (
        "otc leads with 86.00 % (whole stream, memory 500), 4.00 above er "
        "(95 % interval +4.00 to +4.00 over 3 seeds)"
    )
    records += [make_record("scr", shift=1, memory=7), make_record("gsa", memory=7)]
    said = compare.finding(group(map(Run, records)))
    assert said.endswith("; with other streams and memories the leader is scr (1)")
    assert compare.finding(group(map(Run, records[:3]))) == ""  # nobody to compare with


def test_what_is_forgotten_and_what_all_classes_at_once_reach_is_told(make_record: Make) -> None:
    records = [make_record("er", seed=s, shift=-4) for s in (0, 1)]
    records += [make_record("otc", seed=s) for s in (0, 1)]
    groups = group(map(Run, records))
    [block] = compare.alike(groups).values()
    lost = groups[0].summary("forgetting")
    assert lost is not None
    said = compare.further(groups, block)
    assert said == f"Forgotten, in percent points: otc {lost.mean:.2f}, er {lost.mean:.2f}."
    elsewhere = make_record("logistic", shift=4, memory=9000, settings={"order": "joint"})
    more = group(map(Run, [*records, elsewhere]))
    assert compare.further(more, block).endswith("Learning all classes at once: logistic 89.00 %.")
    assert compare.not_run(more, block) == ""


def test_a_lucky_single_run_does_not_speak_for_its_method(make_record: Make) -> None:
    records = [make_record("er", seed=s) for s in (0, 1, 2)] + [make_record("otc", shift=5)]
    records.append(make_record("er", shift=9, settings={"lr": 0.1}))
    groups = group(map(Run, records))
    assert compare.finding(groups).startswith("otc leads with 90.00 %")
    assert "(1 common seed, not settled)" in compare.finding(groups)
    [block] = compare.alike(groups).values()
    assert compare.not_run(groups, block) == "With fewer seeds: otc (1 of 3)."


def test_streams_of_other_lengths_augmentation_and_memory_are_no_match(make_record: Make) -> None:
    changes = [{}, {"limit_per_class": 500}, {"augment": "affine"}, {"limit_per_class": "x"}]
    records = [make_record(settings=change) for change in changes]
    records += [make_record(epochs=2), make_record("finetune", memory=None)]
    assert list(compare.alike(group(map(Run, records)))) == [
        "whole stream, augment affine, memory 500",
        "whole stream, augment none, memory 500",
        "whole stream, augment none, no memory",
        "whole stream, 2 epochs, augment none, memory 500",
        "500 images a class, augment none, memory 500",
    ]
