"""The page: one safe, deterministic file."""

from __future__ import annotations

import base64
import hashlib
import json
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
from ocil.run.reading import upgraded

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from ocil.report.page import write_page

Make = Callable[..., dict[str, Any]]


class Reader(HTMLParser):
    """Collects tags, attributes and text as a browser would see them; scripts by themselves."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] == "script" and self.cdata_elem:
            self.scripts.append(data)
        else:
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
    assert sorted(path.name for path in file.parent.iterdir()) == ["index.html", "tables"]
    page = Reader(file.read_text(encoding="utf-8"))
    for shown in ("85.50 ± 0.71", "15.00 ± 0.00", "tuning", "4 runs", "85.00", "86.00"):
        assert shown in page.text
    for seed in (0, 1):
        assert f"ocil run er --data mnist --seed {seed}" in page.text
        assert ("href", f"../runs/run%20{seed}/record.json") in page.attributes
    for target in ("tables/overview-1.md", "tables/readouts-1.tex", "tables/differences-1.csv"):
        assert ("href", target) in page.attributes
        assert (file.parent / target).is_file()
    # two curves for er, one for joint (anytime), two for tuning; of the comparison accuracy,
    # forgetting (er alone), curves, images and time
    assert page.attributes.count(("class", "still")) == 2 + 1 + 2 + 5
    assert page.attributes.count(("class", "heat")) == 3
    charts = json.loads(page.scripts[1])
    assert len(charts) == page.attributes.count(("class", "still"))


def test_every_number_of_the_overview_leads_to_its_runs(tmp_path: Path, make_record: Make) -> None:
    records = [make_record(seed=s, shift=s) for s in (0, 1)] + [make_record("scr")]
    content = write_page(found(records, tmp_path), tmp_path).read_text(encoding="utf-8")
    overview = content.split("<tbody>")[1].split("</tbody>")[0]
    numbers = re.findall(r'<span class="value">(.*?)</span>', overview)
    assert len(numbers) == 2 * 9
    for cell in numbers:
        linked = re.match(r'<a href="#(g0-\d)">', cell)
        words = cell in ("ema-head", "", "–")
        assert words or (linked and f'id="{linked[1]}"' in content), cell


def test_the_page_asks_for_nothing_and_knows_its_scripts(tmp_path: Path, make_record: Make) -> None:
    file = write_page(found([make_record()], tmp_path), tmp_path)
    content = file.read_text(encoding="utf-8")
    page = Reader(content)
    [policy] = [value for _, value in page.attributes if value.startswith("default-src 'none';")]
    known = base64.b64encode(hashlib.sha256(page.scripts[0].encode()).digest()).decode()
    assert f"'sha256-{known}'" in policy
    assert page.tags.count("script") == 3
    kinds = [value for name, value in page.attributes if name == "type" and "/" in value]
    assert kinds == ["application/json", "text/plain"]
    assert not {"link", "iframe", "object", "image", "img", "base", "form"} & set(page.tags)
    assert "@import" not in content.split("</style>")[0]
    assert not re.findall(r"url\((?!#)", content.split("</style>")[0])
    used = [v for k, v in page.attributes if k in ("href", "src", "xlink:href") and ":" in v]
    assert used == []
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_hostile_text_shows_as_text(tmp_path: Path, hostile_record: dict[str, Any]) -> None:
    other = hostile_record | {"settings": hostile_record["settings"] | {"augment": '"><img src=x>'}}
    path = tmp_path / "javascript:alert(1)" / "record.json"
    file = write_page([(path, hostile_record), (path, other)], tmp_path)
    page = Reader(file.read_text(encoding="utf-8"))
    assert page.tags.count("script") == 3
    assert "img" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert '"><img src=x>' in page.text
    assert "\x1b" not in page.text + page.scripts[1]
    assert "<" not in page.scripts[1]
    assert json.loads(page.scripts[1])[0]["s"]
    assert ("href", "javascript%3Aalert%281%29/record.json") in page.attributes
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "tables"]


def test_runs_from_before_and_after_a_setting_existed_are_one_group_with_their_own_links(
    tmp_path: Path, make_record: Make
) -> None:
    records = [make_record(seed=0), make_record(seed=1, settings={"views": 1})]
    records = [upgraded(record) for record in records]  # as they are when read from a file
    page = Reader(write_page(found(records, tmp_path), tmp_path).read_text(encoding="utf-8"))
    links = [value for name, value in page.attributes if name == "href" and "record" in value]
    assert links == ["run%200/record.json", "run%201/record.json"]
    assert "2 runs in 1 configuration." in page.text


def test_ten_readouts_are_in_a_table_of_their_own(tmp_path: Path, make_record: Make) -> None:
    names = [f"way-{n}" for n in range(10)]
    record = make_record("otc", readouts=["head", "ema-head", *names])
    content = write_page(found([record], tmp_path), tmp_path).read_text(encoding="utf-8")
    overview, rest = content.split("All read-outs", 1)
    assert "way-3" not in overview.split("<body>")[1]
    assert "way-3" in rest


def test_a_readout_keeps_its_look_where_others_were_not_probed(
    tmp_path: Path, make_record: Make
) -> None:
    record = make_record()
    record["evaluations"] = [
        e for e in record["evaluations"] if (e["images"], e["readout"]) != ("probe", "head")
    ]
    page = Reader(write_page(found([record], tmp_path), tmp_path).read_text(encoding="utf-8"))
    tasks, anytime = json.loads(page.scripts[1])
    assert [(s["n"], s["l"]) for s in tasks["s"]] == [("head", 0), ("ema-head", 1)]
    assert [(s["n"], s["l"]) for s in anytime["s"]] == [("ema-head", 1)]


def test_few_groups_are_open_and_many_closed(tmp_path: Path, make_record: Make) -> None:
    def opened(count: int) -> int:
        records = [make_record(settings={"steps": n}) for n in range(1, count + 1)]
        page = write_page(found(records, tmp_path), tmp_path).read_text(encoding="utf-8")
        return page.count('<details class="card" open>')

    assert opened(2) == 2
    assert opened(7) == 0


def test_differences_lead_to_both_sides_and_pairs_with_too_few_seeds_are_named(
    tmp_path: Path, make_record: Make
) -> None:
    records = [make_record(m, seed=s, shift=s) for m in ("er", "otc") for s in (0, 1, 2)]
    records += [make_record("scr", shift=-9)]
    content = write_page(found(records, tmp_path), tmp_path).read_text(encoding="utf-8")
    table = content.split("All paired differences")[1].split("</table>")[0]
    assert re.findall('<a href="#([^"]*)">(er|otc)</a>', table) == [("g0-0", "er"), ("g0-1", "otc")]
    page = Reader(content)
    assert "Fewer than 3 common seeds, so no interval: er and scr; otc and scr." in page.text
    assert "+0.00 to +0.00" in page.text


def test_200_records_weigh_less_than_6_mb(tmp_path: Path, make_record: Make) -> None:
    """Even if no two of them are of one group."""
    records = [make_record(m, settings={"steps": n}) for m in "abcd" for n in range(50)]
    file = write_page(found(records, tmp_path), tmp_path)
    assert file.stat().st_size < 6_000_000


def test_figures_are_written_on_request(tmp_path: Path, make_record: Make) -> None:
    pytest.importorskip("matplotlib")
    records = [make_record(), make_record(split="validation")]
    file = write_page(found(records, tmp_path), tmp_path, figures=True)
    page = Reader(file.read_text(encoding="utf-8"))
    links = {value for name, value in page.attributes if value.startswith("figures/")}
    written = {f"figures/{path.name}" for path in (tmp_path / "figures").iterdir()}
    assert links == written
    stems = {"g0-0-matrix", "g0-0-tasks", "g0-0-anytime"}  # none of the tuning run
    assert written == {f"figures/{s}.{e}" for s in stems for e in ("pdf", "png")}


def test_the_page_is_the_same_every_time(tmp_path: Path, make_record: Make) -> None:
    records = found([make_record(seed=s) for s in (0, 1)], tmp_path)
    pages = [write_page(given, tmp_path).read_bytes() for given in (records, records[::-1])]
    assert pages[0] == pages[1]


def test_a_bare_record_is_enough(tmp_path: Path, make_record: Make) -> None:
    needed = ("method", "data", "split", "seed", "settings", "command", "readout", "readouts")
    needed += ("class_names", "tasks", "evaluations")
    bare = {key: make_record()[key] for key in needed}
    assert "85.00" in write_page(found([bare], tmp_path), tmp_path).read_text(encoding="utf-8")
    nothing = bare | {"evaluations": []}
    assert write_page(found([nothing], tmp_path), tmp_path).is_file()


def test_what_hinders_the_page_is_said(
    tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OcilError, match="no record"):
        write_page([], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OcilError, match="choose another folder"):
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "tables"]
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
        "import sys, ocil.text, ocil.run.metrics, ocil.run.reading\n"
        "from ocil.report import beside, charts, compare, figures, groups, health, latent, lines\n"
        "from ocil.report import page, render\n"
        "from ocil.report import results, show, tables\n"
        "assert 'torch' not in sys.modules\n"
        "for heavy in ('matplotlib', 'scipy', 'plotly', 'jinja2', 'sklearn'):\n"
        "    assert heavy not in sys.modules, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
