"""The page: one safe, deterministic file."""

from __future__ import annotations

import base64
import gzip
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
from ocil.report import charts, details, style
from ocil.report.charts import Series
from ocil.report.groups import Group, group
from ocil.report.runs import Run
from ocil.run.reading import upgraded

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

from ocil.report import page as page_module
from ocil.report.page import chart_data, part, write_page

Make = Callable[..., dict[str, Any]]
HOSTILE = "</script><img src=x onerror=alert(1)>&amp;\u2028\u2029$x$ \x1b[31m"


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

    def packed(self, place: int) -> Any:
        """What a packed script holds: 0 for the first section's details, -2 for all data."""
        found = gzip.decompress(base64.b64decode(self.scripts[1:][place])).decode()
        return json.loads(found)


def as_runs(records: list[dict[str, Any]], root: Path) -> list[Run]:
    return [Run(r, root / f"run {i}" / "record.json") for i, r in enumerate(records)]


def read(records: list[dict[str, Any]], root: Path) -> Reader:
    return Reader(write_page(as_runs(records, root), root).read_text(encoding="utf-8"))


def grouped(records: list[dict[str, Any]]) -> list[Group]:
    return group(map(Run, records))


def test_a_page_shows_numbers_findings_seeds_commands_and_links(
    tmp_path: Path, make_record: Make
) -> None:
    records = [make_record(seed=s, shift=s) for s in (0, 1)]
    records += [make_record("joint", joint=True), make_record(split="validation", memory=None)]
    file = write_page(as_runs(records, tmp_path / "runs"), tmp_path / "report")
    assert file == tmp_path / "report" / "index.html"
    assert sorted(path.name for path in file.parent.iterdir()) == ["index.html", "tables"]
    page = Reader(file.read_text(encoding="utf-8"))
    for shown in (
        "85.50 ± 0.71",
        "15.00 ± 0.00",
        "tuning",
        "Methods: 2, data sets: 1, runs: 4",
        "er leads with",
    ):
        assert shown in page.text
    first = page.packed(0)[0]
    assert [run[:2] for run in first["runs"]] == [[0, "85.00"], [1, "86.00"]]
    assert [run[-1] for run in first["runs"]] == [f"../runs/run%20{s}/record.json" for s in (0, 1)]
    assert first["tasks"] == ["one, zero", "two, three", "four, five"]
    assert first["commands"] == [f"ocil run er --data mnist --seed {s}" for s in (0, 1)]
    assert [row[:2] for row in first["readouts"]] == [
        ["head", "80.50 ± 0.71"], ["ema-head", "85.50 ± 0.71"],
    ]  # fmt: skip
    assert [chart["kind"] for chart in first["charts"]] == ["heat", "lines", "lines"]
    for target in ("tables/overview-1.md", "tables/readouts-1.tex", "tables/differences-1.csv"):
        assert ("href", target) in page.attributes
        assert (file.parent / target).is_file()


def test_the_script_gets_the_numbers_of_every_run(tmp_path: Path, make_record: Make) -> None:
    records = [make_record(seed=s, shift=s) for s in (0, 1)] + [make_record("otc", memory=9)]
    data = read(records, tmp_path).packed(-2)
    otc, er = data["sections"][0]
    assert data["methods"] == ["otc", "er"]
    assert (er["m"], er["seeds"], er["acc"]) == (1, [0, 1], [85, 86])
    assert er["curve"] == [[95, 90, 85], [96, 91, 86]]
    assert er["cost"] == {"seconds": [1.5, 2.5], "images": [4440, 4440], "bytes": [392000] * 2}
    assert er["pair"] == otc["pair"] * 2
    assert data["t"] == pytest.approx([0, 12.706205])  # two seeds at most: one degree of freedom
    assert er["where"] == "whole stream, memory 500"


def test_columns_that_say_nothing_are_left_out(tmp_path: Path, make_record: Make) -> None:
    page = read([make_record()], tmp_path)
    told = "what tells this row from others of its method"
    assert ("title", told) not in page.attributes
    both = read([make_record(), make_record(settings={"lr": 0.1})], tmp_path)
    assert "lr=0.1" in both.text
    assert ("title", told) in both.attributes


def test_the_page_asks_for_nothing_and_knows_its_scripts(tmp_path: Path, make_record: Make) -> None:
    content = write_page(as_runs([make_record()], tmp_path), tmp_path).read_text(encoding="utf-8")
    page = Reader(content)
    [policy] = [value for _, value in page.attributes if value.startswith("default-src 'none';")]
    plotly = gzip.decompress(base64.b64decode(page.scripts[-1]))
    assert b"plotly.js v" in plotly[:200]
    for code in (page.scripts[0].encode(), plotly):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'" in policy
    scripts = re.search("script-src ([^;]*);", policy)
    assert scripts is not None and "unsafe" not in scripts[1]
    assert page.tags.count("script") == 1 + 1 + 2  # ours, details of a section, data and plotly
    kinds = [value for name, value in page.attributes if name == "type" and "/" in value]
    assert kinds == ["text/plain"] * 3
    assert not {"link", "iframe", "object", "image", "img", "base", "form"} & set(page.tags)
    head = content.split("</style>")[0]
    assert "@import" not in head and "url(" not in head
    used = [v for k, v in page.attributes if k in ("href", "src", "xlink:href") and ":" in v]
    assert used == []
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for ending in ("</script", "<!--", "<script"):
        assert ending not in part("page.js").lower()


def test_hostile_text_shows_as_text(tmp_path: Path, hostile_record: dict[str, Any]) -> None:
    other = hostile_record | {"settings": hostile_record["settings"] | {"lr": '"><img src=x>'}}
    path = tmp_path / "javascript:alert(1)" / "record.json"
    file = write_page([Run(hostile_record, path), Run(other, path)], tmp_path)
    page = Reader(file.read_text(encoding="utf-8"))
    assert page.tags.count("script") == 4
    assert "img" not in page.tags
    assert "<script>alert(1)</script>" in page.text
    assert '"><img src=x>' in page.text
    details = json.dumps(page.packed(0))
    assert "\x1b" not in page.text + details
    assert page.packed(0)[0]["runs"][0][-1] == "javascript%3Aalert%281%29/record.json"
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "tables"]


def test_runs_from_before_and_after_a_setting_existed_are_one_group_with_their_own_links(
    tmp_path: Path, make_record: Make
) -> None:
    records = [make_record(seed=0), make_record(seed=1, settings={"views": 1})]
    page = read([upgraded(record) for record in records], tmp_path)
    [only] = page.packed(0)
    assert [run[-1] for run in only["runs"]] == ["run%200/record.json", "run%201/record.json"]


def test_a_readout_keeps_its_look_where_others_were_not_probed(make_record: Make) -> None:
    record = make_record()
    record["evaluations"] = [
        e for e in record["evaluations"] if (e["images"], e["readout"]) != ("probe", "head")
    ]
    found = details.group_charts(grouped([record])[0])
    assert [(s.name, s.look) for s in found["tasks"].series] == [("head", 0), ("ema-head", 1)]
    assert [(s.name, s.look) for s in found["anytime"].series] == [("ema-head", 1)]


def test_records_weigh_little_even_if_no_two_are_of_one_group(
    tmp_path: Path, make_record: Make
) -> None:
    one = write_page(as_runs([make_record()], tmp_path), tmp_path)
    assert one.stat().st_size < 2_300_000
    records = [make_record(m, settings={"updates": n}) for m in "abcd" for n in range(50)]
    assert write_page(as_runs(records, tmp_path), tmp_path).stat().st_size < 4_000_000


def test_figures_are_written_on_request(tmp_path: Path, make_record: Make) -> None:
    pytest.importorskip("matplotlib")
    records = [make_record(m, seed=s, shift=s) for m in ("er", "otc") for s in (0, 1, 2)]
    records.append(make_record(split="validation"))  # figures of tuning runs are not for papers
    write_page(as_runs(records, tmp_path), tmp_path, figures=True)
    stems = {f"1-{n}-{what}" for n in (0, 1) for what in ("matrix", "tasks", "anytime")}
    kinds = ("tasks", "differences", "seconds", "images", "bytes")
    stems |= {f"1-block-1-{what}" for what in kinds}
    written = {path.name for path in (tmp_path / "figures").iterdir()}
    assert written == {f"{s}.{e}" for s in stems for e in ("pdf", "png")}


def test_the_page_is_the_same_every_time(tmp_path: Path, make_record: Make) -> None:
    runs = as_runs([make_record(seed=s) for s in (0, 1)], tmp_path)
    pages = [write_page(given, tmp_path).read_bytes() for given in (runs, runs[::-1])]
    assert pages[0] == pages[1]


def test_a_bare_record_is_enough(tmp_path: Path, make_record: Make) -> None:
    needed = ("method", "data", "split", "seed", "settings", "command", "readout", "readouts")
    needed += ("class_names", "tasks", "evaluations")
    bare = {key: make_record()[key] for key in needed}
    assert "85.00" in read([bare], tmp_path).text
    assert read([bare | {"evaluations": []}], tmp_path).packed(-2)["sections"][0][0]["acc"] == [
        None
    ]


def test_what_hinders_the_page_is_said(
    tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = as_runs([make_record()], tmp_path)
    with pytest.raises(OcilError, match="no record"):
        write_page([], tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(OcilError, match="choose another folder"):
        write_page(runs, tmp_path / "file")
    page_module._plotly.cache_clear()
    for module in ("plotly.offline", "jinja2"):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(OcilError, match=r"pip install ocil\[report\]"):
            write_page(runs, tmp_path)


def test_a_failed_write_keeps_the_old_page(
    tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_page(as_runs([make_record()], tmp_path), tmp_path).read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OcilError, match="No space left"):
        write_page(as_runs([make_record("joint")], tmp_path), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "tables"]
    assert (tmp_path / "index.html").read_bytes() == old


# ------------------------------------------------------------------ what is drawn


def test_data_has_no_numbers_that_json_lacks_and_only_visible_text() -> None:
    chart = charts.points(HOSTILE, "x", "y", [Series(HOSTILE, [1.0, 2.0], [np.nan, np.inf])])
    found = chart_data(chart)
    assert found["s"][0]["y"] == [None, None]
    assert "\x1b" not in json.dumps(found) and "\u2028" not in found["title"]
    heat = chart_data(charts.heat("", np.array([[12.3456, np.nan]])))
    assert heat["v"] == [[12.346, None]]
    assert heat["z"] == [[0.0152, None]]


def test_the_shades_of_the_page_are_those_of_the_figures() -> None:
    light = part("page.css").split("@media")[0]
    for n, colour in enumerate(style.RAMP):
        assert f"--h{n}: {colour};" in light


def test_lines_over_seeds(make_record: Make) -> None:
    [g] = grouped([make_record(seed=s, shift=s) for s in (0, 2)])
    np.testing.assert_array_equal(
        details.mean_matrix(g, "head"), [[91, np.nan, np.nan], [81, 91, np.nan], [71, 81, 91]]
    )
    curve = details.through_tasks(g, "head", "er")
    np.testing.assert_array_equal(curve.x, [1, 2, 3])
    np.testing.assert_allclose(curve.values, [[90, 85, 80], [92, 87, 82]])
    assert details.anytime(g, "head", "er").values.shape == (2, 6)
    assert details.task_borders(g) == [20.0, 40.0]


def test_seeds_share_only_common_steps(make_record: Make) -> None:
    shorter = make_record(seed=1, tasks=[[0, 1], [3, 2], [4, 5]])
    shorter["evaluations"] = [e for e in shorter["evaluations"] if e["step"] != 50]
    [g] = grouped([make_record(), shorter])
    np.testing.assert_array_equal(details.anytime(g, "head", "er").x, [10, 20, 30, 40, 60])


def test_the_mean_matrix_is_over_the_runs_that_measured(make_record: Make) -> None:
    partly = make_record(seed=1, shift=4)
    partly["evaluations"] = [e for e in partly["evaluations"] if e["task"] == 2]
    [g] = grouped([make_record(), partly])
    np.testing.assert_array_equal(
        details.mean_matrix(g, "head")[1:], [[80, 90, np.nan], [72, 82, 92]]
    )
    np.testing.assert_array_equal(details.through_tasks(g, "head", "er").x, [3])


def test_reports_do_not_load_torch() -> None:
    code = (
        "import sys, ocil.text, ocil.run.metrics, ocil.run.reading\n"
        "from ocil.report import charts, compare, details, figures, files, groups, latent, page\n"
        "from ocil.report import panels, render, results, runs, show, tables\n"
        "from ocil.paper import summary\n"
        "for heavy in ('torch', 'matplotlib', 'scipy', 'plotly', 'jinja2', 'sklearn'):\n"
        "    assert heavy not in sys.modules, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
