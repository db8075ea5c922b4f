"""Pictures, their data, the bundle and the policy of the page."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil.errors import OcilError
from ocil.report import charts
from ocil.report.charts import Chart, Line, Series
from ocil.report.web import bundle, clouds, data, gallery, svg

HOSTILE = "</script><img src=x onerror=alert(1)>&amp;\u2028\u2029$x$ \x1b[31m"


def all_kinds(name: str = "er") -> Iterator[Chart]:
    x = np.arange(1.0, 6.0)
    line = Line(name, x, 80 + np.outer([0, 3], np.ones(5)), link="#g0-0")
    mark = Series(name, [90.0], [0.0], [89.0], [91.0], 1, "#g0-1", [name])
    yield charts.curves(name, [line], borders=[2.5])
    yield charts.rows(name, name, [mark, Series("none", [], [])], zero=True)
    yield charts.points(name, name, name, [mark, Series("bare", [5.0], [70.0], look=7)])
    yield charts.heat(name, np.array([[90.0, np.nan], [20.0, 100.0]]))
    yield charts.heat(name, np.full((130, 130), 50.0))
    specks = Series(name, x.tolist(), x.tolist(), look=6)
    yield charts.cloud(name, [specks, Series(name, [1.0], [2.0], look=6, notes=["centroid"])])


@pytest.mark.parametrize("name", ["er", HOSTILE, "", "数字", "<" * 500])
def test_every_kind_is_whole_markup_without_foreign_parts(name: str) -> None:
    for chart in all_kinds(name):
        root = ET.fromstring(svg.svg(chart))
        tags = {element.tag for element in root.iter()}
        assert tags <= {"svg", "g", "a", "path", "text", "title", "use"}
        names = {key for element in root.iter() for key in element.attrib}
        assert not [key for key in names if key.startswith("on")]
        assert "nan" not in ET.tostring(root, encoding="unicode").replace("数字", "")


def test_a_line_has_band_marks_tooltip_and_link() -> None:
    chart = next(all_kinds())
    drawn = svg.svg(chart)
    assert drawn.count("<use ") == 5
    assert 'class="band"' in drawn
    assert '<a href="#g0-0"' in drawn
    assert "<title>er</title>" in drawn
    many = Line("er", np.arange(200.0), np.full((1, 200), 5.0))
    assert "<use " not in svg.svg(charts.curves("", [many]))


def test_only_links_within_the_page_are_links() -> None:
    series = Series("a", [1.0], [1.0], link="javascript:alert(1)")
    chart = charts.points("", "x", "y", [series])
    assert "javascript" not in svg.svg(chart)
    assert "javascript" not in data.embedded(data.data(chart))


def test_a_large_matrix_is_thinned_out() -> None:
    large = svg.svg(charts.heat("", np.full((1000, 1000), 50.0)))
    assert len(large) < 150_000
    few = svg.svg(charts.heat("", np.array([[90.0, np.nan], [20.0, 100.0]])))
    assert few.count('class="h') == 3


def test_many_classes_in_a_cloud_are_not_named() -> None:
    def cloud(count: int) -> str:
        return svg.svg(
            charts.cloud("", [Series(f"class {n}", [n], [n], look=n) for n in range(count)])
        )

    assert ">class 3</text>" in cloud(charts.MOST_NAMES)
    assert "</text>" not in cloud(charts.MOST_NAMES + 1)


def test_data_survives_json_and_cannot_leave_its_element() -> None:
    for chart in all_kinds(HOSTILE):
        written = data.embedded(data.data(chart))
        assert not set(written) & set("<>&\u2028\u2029\x1b")
        back = json.loads(written)
        assert back["kind"] == chart.kind
        for series in back["s"]:
            assert series["n"].startswith("</script>") or series["n"] in ("none", "bare")
    assert json.loads(data.embedded({"a": HOSTILE})) == {"a": HOSTILE}


def test_data_has_no_numbers_that_json_lacks() -> None:
    chart = charts.points("", "x", "y", [Series("a", [1.0, 2.0], [np.nan, np.inf])])
    assert data.data(chart)["s"][0]["y"] == [None, None]
    assert data.data(charts.heat("", np.array([[12.3456, np.nan]])))["v"] == [[12.346, None]]


def test_the_bundle_holds_plotly_and_the_policy_its_sum() -> None:
    pytest.importorskip("plotly")
    own = bundle.bundle()
    code = gzip.decompress(base64.b64decode(own.plotly))
    assert b"plotly.js v" in code[:200]
    for script in (code, own.script.encode()):
        known = base64.b64encode(hashlib.sha256(script).digest()).decode()
        assert f"'sha256-{known}'" in own.policy
    scripts = re.search("script-src ([^;]*);", own.policy)
    assert scripts is not None and "unsafe" not in scripts[1]
    assert "default-src 'none'" in own.policy
    for ending in ("</script", "<!--", "<script"):
        assert ending not in own.script.lower()
    assert "</style" not in own.style.lower()
    assert "@import" not in own.style and "url(" not in own.style


def test_the_colours_of_the_page_are_those_of_the_figures() -> None:
    from ocil.report import looks

    light, dark = bundle.part("page.css").split("@media (prefers-color-scheme: dark)")[:2]
    for n, (one, other) in enumerate(zip(looks.COLOURS, looks.DARK, strict=True)):
        assert f"--c{n}: {one};" in light
        assert f"--c{n}: {other};" in dark
    for n, colour in zip((0, 3, 6, 9), looks.RAMP, strict=True):
        assert f"--h{n}: {colour};" in light
    for n, dash in enumerate(looks.DASHES[1:], start=1):
        assert f".d{n} {{ stroke-dasharray: {dash}; }}" in light + dark + bundle.part("page.css")


def test_without_plotly_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle.bundle.cache_clear()
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(OcilError, match=r"pip install ocil\[report\]"):
        bundle.bundle()


def test_files_are_offered_for_named_charts_on_request_only() -> None:
    chart = next(all_kinds())
    pytest.importorskip("jinja2")
    assert gallery.Gallery().add(chart, name="a")["files"] == []
    asked = gallery.Gallery(files=True)
    assert asked.add(chart, name="a")["files"] == [
        ("PDF", "figures/a.pdf"),
        ("PNG", "figures/a.png"),
    ]
    assert asked.add(chart)["files"] == []
    assert list(asked.named) == ["a"]


def test_latents_become_a_cloud_a_class_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ocil.report import latent

    def pictures(folder: Path, **_: Any) -> list[dict[str, Any]]:
        return [
            {
                "title": HOSTILE,
                "x": [0.0, 1.0, 2.0, float("nan")],
                "y": [0.0, 1.0, 2.0, 0.0],
                "label": ["b", "a", "b", "a"],
                "kind": ["feature", "feature", "centroid", "feature"],
            }
        ]

    monkeypatch.setattr(latent, "pictures", pictures)
    assert clouds.clouds([tmp_path]) == []
    (tmp_path / "with").mkdir()
    (tmp_path / "with" / clouds.LATENTS).touch()
    [chart] = clouds.clouds([tmp_path, tmp_path / "with"])
    found = [(s.name, list(s.x), s.look, bool(s.notes)) for s in chart.series]
    assert found == [("b", [0.0], 0, False), ("a", [1.0], 1, False), ("b", [2.0], 0, True)]
    assert "\x1b" not in chart.title
