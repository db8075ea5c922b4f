"""The page: one safe, deterministic file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil.errors import OcilError
from ocil.report import lines
from ocil.report.groups import group

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from ocil.report.figures import COLOURS
from ocil.report.page import write_page

Make = Callable[..., dict[str, Any]]


class Reader(HTMLParser):
    """Collects tags, attributes and text as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def found(records: list[dict[str, Any]], root: Path) -> list[tuple[Path, dict[str, Any]]]:
    return [(root / f"run {i}" / "record.json", record) for i, record in enumerate(records)]


def test_a_page_shows_numbers_pictures_commands_and_links(
    tmp_path: Path, make_record: Make
) -> None:
    records = [make_record(seed=s, shift=s) for s in (0, 1)]
    records += [make_record("joint", joint=True), make_record(split="validation", memory=None)]
    file = write_page(found(records, tmp_path / "runs"), tmp_path / "report")
    assert file == tmp_path / "report" / "index.html"
    assert [path.name for path in file.parent.iterdir()] == ["index.html"]
    page = Reader(file.read_text(encoding="utf-8"))
    for shown in ("80.50 ± 0.71", "85.50 ± 0.71", "15.00 ± 0.00", "tuning", "4 runs"):
        assert shown in page.text
    assert "ocil run er --data mnist --seed 0" in page.text
    assert ("href", "../runs/run%200/record.json") in page.attributes
    # er: matrix and two curves; joint: matrix and anytime; tuning: three; one comparison
    assert page.tags.count("svg") == 3 + 2 + 3 + 1


def test_the_page_asks_for_nothing(tmp_path: Path, make_record: Make) -> None:
    file = write_page(found([make_record()], tmp_path), tmp_path)
    content = file.read_text(encoding="utf-8")
    page = Reader(content)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert ("content", policy) in page.attributes
    assert not {"script", "link", "iframe", "object", "image", "img"} & set(page.tags)
    assert "@import" not in content
    assert not re.findall(r"url\((?!#)", content)
    used = [v for k, v in page.attributes if k in ("href", "src", "xlink:href") and ":" in v]
    assert used == []
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_hostile_text_shows_as_text(tmp_path: Path, hostile_record: dict[str, Any]) -> None:
    other = hostile_record | {"settings": hostile_record["settings"] | {"augment": '"><img src=x>'}}
    path = tmp_path / "javascript:alert(1)" / "record.json"
    file = write_page([(path, hostile_record), (path, other)], tmp_path)
    page = Reader(file.read_text(encoding="utf-8"))
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert '"><img src=x>' in page.text
    assert "\x1b" not in page.text
    assert ("href", "javascript%3Aalert%281%29/record.json") in page.attributes
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_a_readout_keeps_its_colour_where_others_were_not_probed(
    tmp_path: Path, make_record: Make
) -> None:
    record = make_record()
    record["evaluations"] = [
        e for e in record["evaluations"] if (e["images"], e["readout"]) != ("probe", "head")
    ]
    content = write_page(found([record], tmp_path), tmp_path).read_text(encoding="utf-8")
    anytime = content.split("while learning, ema-head</figcaption>")[1].split("</svg>")[0]
    assert COLOURS[1] in anytime
    assert COLOURS[0] not in anytime


def test_the_page_is_the_same_every_time(tmp_path: Path, make_record: Make) -> None:
    records = found([make_record(seed=s) for s in (0, 1)], tmp_path)
    pages = [write_page(given, tmp_path).read_bytes() for given in (records, records[::-1])]
    assert pages[0] == pages[1]


def test_a_bare_record_is_enough(tmp_path: Path, make_record: Make) -> None:
    needed = ("method", "data", "split", "seed", "settings", "command", "readout", "readouts")
    needed += ("class_names", "tasks", "evaluations")
    bare = {key: make_record()[key] for key in needed}
    assert "80.00" in write_page(found([bare], tmp_path), tmp_path).read_text(encoding="utf-8")
    nothing = bare | {"evaluations": []}
    assert write_page(found([nothing], tmp_path), tmp_path).is_file()


def test_what_hinders_the_page_is_said(
    tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OcilError, match="no record"):
        write_page([], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OcilError, match="choose another --out"):
        write_page(found([make_record()], tmp_path), tmp_path / "file")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(OcilError, match=r"pip install ocil\[report\]"):
        write_page(found([make_record()], tmp_path), tmp_path)


def test_a_failed_write_keeps_the_old_page(
    tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_page(found([make_record()], tmp_path), tmp_path).read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OcilError, match="No space left"):
        write_page(found([make_record("joint")], tmp_path), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert (tmp_path / "index.html").read_bytes() == old


def test_lines_over_seeds(make_record: Make) -> None:
    [g] = group([make_record(seed=s, shift=s) for s in (0, 2)])
    np.testing.assert_array_equal(
        lines.mean_matrix(g, "head"), [[91, np.nan, np.nan], [81, 91, np.nan], [71, 81, 91]]
    )
    curve = lines.through_tasks(g, "head", "er")
    np.testing.assert_array_equal(curve.x, [1, 2, 3])
    np.testing.assert_allclose(curve.values, [[90, 85, 80], [92, 87, 82]])
    assert lines.anytime(g, "head", "er").values.shape == (2, 6)
    assert lines.task_borders(g) == [20.0, 40.0]
    assert lines.shared_task_names(g) == ["one, zero", "two, three", "four, five"]


def test_seeds_with_other_tasks_share_no_names_and_only_common_steps(make_record: Make) -> None:
    shorter = make_record(seed=1, tasks=[[0, 1], [3, 2], [4, 5]])
    shorter["evaluations"] = [e for e in shorter["evaluations"] if e["step"] != 50]
    [g] = group([make_record(), shorter])
    assert lines.shared_task_names(g) is None
    np.testing.assert_array_equal(lines.anytime(g, "head", "er").x, [10, 20, 30, 40, 60])


def test_the_mean_matrix_is_over_the_runs_that_measured(make_record: Make) -> None:
    partly = make_record(seed=1, shift=4)
    partly["evaluations"] = [e for e in partly["evaluations"] if e["task"] == 2]
    [g] = group([make_record(), partly])
    np.testing.assert_array_equal(
        lines.mean_matrix(g, "head")[1:], [[80, 90, np.nan], [72, 82, 92]]
    )
    np.testing.assert_array_equal(lines.through_tasks(g, "head", "er").x, [3])


def test_reports_do_not_load_torch() -> None:
    code = (
        "import sys, ocil.run.metrics, ocil.run.reading\n"
        "from ocil.report import figures, groups, lines, page, render\n"
        "from ocil.report import results, show, tables, text\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'matplotlib' not in sys.modules and 'scipy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
