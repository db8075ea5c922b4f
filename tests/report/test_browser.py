"""The page in a browser: headless Chromium, if it is installed."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ocil
from ocil.report.page import write_page
from ocil.report.runs import Run, read_runs

pytest.importorskip("jinja2")
pytest.importorskip("plotly")
playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)"),
]
Make = Callable[..., dict[str, Any]]
Records = list[dict[str, Any]]
PATIENCE = 180_000  # milliseconds; plotly starts slowly where processors are busy
RESULTS = Path(ocil.__file__).parents[2] / "results"
LOW = {"viewport": {"width": 390, "height": 300}}  # has room for one picture
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

# As soon as the script says that the tables answer: is there a chart library, does sorting work?
AT_ONCE = """
const mark = performance.mark.bind(performance);
performance.mark = (name) => {
  if (name === "usable") {
    const heads = Array.from(document.querySelectorAll("section.open thead th"));
    const head = heads.find((h) => h.textContent === "accuracy");
    head.firstChild.click();
    window.atOnce = [typeof window.Plotly, head.getAttribute("aria-sort")];
    head.removeAttribute("aria-sort");
  }
  return mark(name);
};
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        chromium = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Tab:
    """A page with all that it said and asked for."""

    def __init__(self, browser: Any, file: Path, timed: bool = False, **options: Any) -> None:
        self.context = browser.new_context(
            **({"viewport": {"width": 1280, "height": 900}} | options)
        )
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        if timed:
            self.page.add_init_script(AT_ONCE)
            browser.start_tracing(page=self.page, categories=["blink.user_timing"])
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.problems.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-drawn]", state="attached")
        self.events = json.loads(browser.stop_tracing())["traceEvents"] if timed else []

    @property
    def section(self) -> Any:
        return self.page.locator("section.open")

    def see(self, place: str) -> Any:
        """The first such place of the section, scrolled to and drawn."""
        figure = self.section.locator(place).first
        figure.scroll_into_view_if_needed()
        figure.locator(".main-svg").first.wait_for()
        return figure

    def spent(self, name: str) -> float:
        """Seconds of processor time until the script came so far, whatever else was running."""
        return next(event["tts"] for event in self.events if event["name"] == name) / 1e6

    def column(self, name: str) -> list[str]:
        heads = [
            text.split()[0] for text in self.section.locator("thead").first.inner_text().split("\t")
        ]
        place = heads.index(name)
        rows = self.section.locator("tbody tr[data-row]:visible")
        return [row.locator("td").nth(place).inner_text().split("\n")[0] for row in rows.all()]

    def press(self, name: str) -> None:
        self.section.locator("th").get_by_role("button", name=re.compile(f"^{name}")).click()

    def drawn_names(self) -> list[str]:
        return self.section.locator("figure.pairs .ytick text").all_text_contents()

    def is_quiet(self) -> bool:
        """No complaint, and nothing asked for but the file itself."""
        return self.problems == [] and len(self.requests) == 1


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def opened(records: Records, **options: Any) -> Tab:
        runs = [Run(r, tmp_path / "runs" / str(i) / "record.json") for i, r in enumerate(records)]
        tabs.append(Tab(browser, write_page(runs, tmp_path / "page"), **options))
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.context.close()


@pytest.fixture
def records(make_record: Make) -> Records:
    """Three methods and three seeds at a memory of 500, and one run at 1 500."""
    shifts = (("er", 0), ("otc", 3), ("scr", -20))
    found = [make_record(m, seed=s, shift=d + s % 2) for m, d in shifts for s in (0, 1, 2)]
    return [*found, make_record("otc", memory=1500, shift=3)]


def test_it_opens_without_a_complaint_and_asks_for_nothing(
    open_page: Callable[..., Tab], records: Records
) -> None:
    tab = open_page(records)
    for name in ("pairs", "tasks", "cost"):
        assert tab.see(f"figure.{name}").is_visible()
    assert tab.drawn_names() == ["otc", "er", "scr"]
    assert tab.is_quiet()
    assert tab.requests[0].startswith("file://")


def test_columns_sort_by_mouse_and_by_keyboard(
    open_page: Callable[..., Tab], records: Records
) -> None:
    tab = open_page(records)

    def numbers() -> list[float]:
        return [float(cell.split()[0]) for cell in tab.column("accuracy")]

    tab.press("accuracy")
    assert numbers() == sorted(numbers(), reverse=True)
    assert tab.section.locator("th[aria-sort=descending]").inner_text().startswith("accuracy")
    tab.page.keyboard.press("Enter")  # the button has the focus
    assert numbers() == sorted(numbers())
    tab.press("method")
    assert tab.column("method") == ["er", "otc", "otc", "scr"]
    assert tab.section.locator("th[aria-sort]").count() == 1


def test_what_was_not_measured_sorts_last_both_ways(
    open_page: Callable[..., Tab], make_record: Make
) -> None:
    joint = make_record("joint", joint=True)  # has no forgetting
    tab = open_page([make_record("er"), joint, make_record("otc", shift=5)])
    for _ in range(2):
        tab.press("forgetting")
        assert tab.column("forgetting")[-1] == "–"


def test_tooltips_tell_the_difference_its_interval_and_every_seed(
    open_page: Callable[..., Tab], records: Records
) -> None:
    tab = open_page(records)
    said = tab.page.evaluate(
        "Array.from(document.querySelector('section.open figure.pairs .plot').data,"
        " (trace) => trace.hovertext).flat()"
    )
    assert "<b>otc</b><br>the reference, 88.33 %" in said
    assert "<b>er</b><br>-3.00 points; 95 % interval -3.00 to -3.00, 3 seeds" in said
    assert "<b>er</b><br>seed 2: -3.00" in said
    tab.see("figure.cost").locator(".points path.point").first.hover(force=True)
    tip = tab.page.locator(".hoverlayer .hovertext").first
    tip.wait_for()
    assert "seconds of learning" in tip.text_content()
    assert tab.is_quiet()


def test_rows_reference_and_unit_can_be_chosen(
    open_page: Callable[..., Tab], records: Records
) -> None:
    tab = open_page(records)
    tab.section.locator("select.reference").select_option(label="er")
    wait = "n => document.querySelector('section.open figure.pairs .plot').data.length === n"
    title = tab.section.locator("figure.pairs .xtitle")
    title.get_by_text("percent points above er").wait_for()
    tab.section.locator("tbody tr[data-row] input:checked").first.uncheck()
    tab.page.wait_for_function(wait, arg=3)  # one trace for the reference, two for scr
    assert tab.drawn_names() == ["er", "scr"]
    tab.section.locator("select.unit").select_option("bytes")
    tab.section.locator("figure.cost .xtitle").get_by_text("bytes held").wait_for()
    block = tab.section.locator("select.block")
    block.select_option(label="whole stream, memory 1500")
    assert tab.section.locator("tbody input:checked").count() == 1
    assert tab.section.locator("figure.pairs").is_hidden()
    assert tab.is_quiet()


def test_a_row_opens_its_seeds_readouts_pictures_commands_and_record(
    open_page: Callable[..., Tab], records: Records
) -> None:
    tab = open_page(records)
    tab.section.locator("td .value button").first.click()
    detail = tab.section.locator("tr.detail")
    tab.see("tr.detail figure")
    text = detail.inner_text()
    assert "average anytime accuracy" in text and "ema-head" in text
    assert "Task 1: one, zero." in text
    assert "ocil run otc --data mnist --seed 2" in text
    assert detail.get_by_role("link", name="record.json").count() == 3
    tab.press("method")  # the details stay below their row
    assert tab.section.locator("tbody > tr").nth(2).get_attribute("class") == "detail"
    tab.section.locator("td .value button").nth(1).click()
    assert tab.section.locator("tr.detail").count() == 0
    assert tab.is_quiet()


def test_commands_are_copied_a_line_each(open_page: Callable[..., Tab], make_record: Make) -> None:
    tab = open_page([make_record(seed=s) for s in (0, 1)])  # a lone row is open
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.page.get_by_role("button", name="Copy").click()
    tab.page.get_by_role("button", name="Copied").wait_for()
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied == "".join(f"ocil run er --data mnist --seed {s}\n" for s in (0, 1))


def test_csv_holds_what_is_shown_and_every_seed(
    open_page: Callable[..., Tab], records: Records, make_record: Make
) -> None:
    tab = open_page([*records, make_record("=cmd()", shift=-30)])
    tab.press("accuracy")
    tab.section.locator("input.filter").fill("500 e")
    with tab.page.expect_download() as download:
        tab.section.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    found = [row["method"] for row in rows]
    assert [name.lstrip("'") for name in found] == tab.column("method")
    assert "'=cmd()" in found
    er = next(row for row in rows if row["method"] == "er")
    assert er["accuracy by seed"] == "0: 85; 1: 86; 2: 85"


def test_hostile_text_shows_as_text_in_tables_pictures_and_tooltips(
    open_page: Callable[..., Tab], hostile_record: dict[str, Any], make_record: Make
) -> None:
    markup = "<b>b</b><a href='https://a.b'>c</a>&lt;"  # plotly knows these
    same = {"augment": hostile_record["settings"]["augment"]}
    other = make_record(markup, data=hostile_record["data"], shift=3, settings=same)
    tab = open_page([hostile_record, other])
    names = ["<script>alert(1)</script>|$x^2$ [red]", markup]
    for name in names:
        assert name in tab.section.locator("table").first.inner_text()
        assert [label for label in tab.drawn_names() if label.startswith(name[:25])]
    tab.section.locator("td .value button").first.click()
    tab.see("tr.detail figure")
    assert tab.page.locator("a[href*='a.b']").count() == 0
    assert tab.is_quiet()


def test_the_policy_stops_a_script_that_slipped_in(
    open_page: Callable[..., Tab], browser: Any, tmp_path: Path, make_record: Make
) -> None:
    open_page([make_record()])
    file = tmp_path / "page" / "index.html"
    bad = "<script>window.bad = 1</script><img src=x onerror='window.bad = 1'>"
    bad += "<iframe src='https://example.org/'></iframe>"
    file.write_text(file.read_text(encoding="utf-8").replace("<main>", f"<main>{bad}"))
    tab = Tab(browser, file)
    assert tab.page.evaluate("window.bad === undefined")
    assert [p for p in tab.problems if "Content Security Policy" in p]
    assert not [url for url in tab.requests if url.startswith("http")]
    tab.context.close()


def test_without_a_script_findings_and_tables_are_there(
    open_page: Callable[..., Tab], browser: Any, tmp_path: Path, records: Records
) -> None:
    open_page([*records, records[0] | {"split": "validation"}])
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "page" / "index.html").as_uri())
    assert page.locator("table").count() == 2
    assert page.get_by_text("otc leads with 88.33").first.is_visible()
    assert page.locator(".pictures").first.is_hidden()
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("phone", [{}, PHONE], ids=["desk", "phone"])
def test_it_fits_the_screen_in_both_colours(
    open_page: Callable[..., Tab], records: Records, scheme: str, phone: dict[str, Any]
) -> None:
    tab = open_page(records, color_scheme=scheme, **phone)
    width = phone.get("viewport", {}).get("width", 1280)
    tab.section.locator("td .value button").first.click()
    tab.see("tr.detail figure")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    ink = tab.page.evaluate("getComputedStyle(document.body).color")
    paper = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    level = [np.mean([int(v) for v in c[4:-1].split(",")]) for c in (ink, paper)]
    assert (level[0] < level[1]) == (scheme == "light")
    drawn = tab.see("figure.tasks").locator(".xtick text").first
    assert drawn.evaluate("e => getComputedStyle(e).fill") != paper
    assert tab.is_quiet()


def test_print_shows_pictures_and_tables(open_page: Callable[..., Tab], records: Records) -> None:
    tab = open_page(records, **LOW)  # two pictures are out of sight
    assert tab.page.locator(".js-plotly-plot").count() == 1
    assert tab.page.pdf()[:4] == b"%PDF"
    assert tab.page.locator(".js-plotly-plot").count() == 3
    tab.page.emulate_media(media="print")
    assert tab.section.locator("figure.cost .main-svg").first.is_visible()
    assert tab.section.locator("input.filter").is_hidden()


def test_colours_follow_the_screen(open_page: Callable[..., Tab], records: Records) -> None:
    tab = open_page(records)
    mark = tab.see("figure.tasks").locator(".points path.point").first
    before = mark.evaluate("e => getComputedStyle(e).fill")
    tab.page.emulate_media(color_scheme="dark")
    tab.page.wait_for_function(
        "before => getComputedStyle(document.querySelector("
        "'section.open figure.tasks .points path.point')).fill !== before",
        arg=before,
    )


def test_eighteen_methods_have_colours_of_their_own(
    open_page: Callable[..., Tab], make_record: Make
) -> None:
    tab = open_page([make_record(f"m{n:02}", shift=-n) for n in range(18)])
    tab.see("figure.tasks")
    find = "Array.from(document.querySelector('section.open figure.tasks .plot').data, {})"
    colours = tab.page.evaluate(find.format("(t) => t.line.color"))
    assert len(set(colours)) == 18
    looks = tab.page.evaluate(find.format("(t) => t.line.dash + t.marker.symbol"))
    assert len(set(looks)) == 18


# ------------------------------------------------------------------ how large, how fast


def check_size(tab: Tab, file: Path, most: float, rows: int) -> None:
    """What makes it quick, and how quick its tables are; bench/page.py prints the pictures too."""
    assert file.stat().st_size < most
    assert tab.spent("usable") < 2
    assert tab.page.evaluate("window.atOnce") == ["undefined", "descending"]
    assert tab.page.locator(".js-plotly-plot").count() <= 3  # of one section, before any click
    field = tab.section.locator("input.filter")
    assert field.get_attribute("placeholder") == f"Filter {rows} rows"
    tab.press("accuracy")
    assert tab.section.locator("th[aria-sort=descending]").count() == 1
    assert tab.is_quiet()


def test_pictures_are_drawn_when_they_are_scrolled_to(
    open_page: Callable[..., Tab], records: Records
) -> None:
    tab = open_page(records, **LOW)
    drawn = tab.page.locator(".js-plotly-plot")
    assert drawn.count() == 1  # the first one, seen or not
    tab.see("figure.cost")
    tab.see("figure.tasks")
    assert drawn.count() == 3
    tab.section.locator("td .value button").first.click()
    tab.see("tr.detail figure")
    assert drawn.count() < 3 + tab.section.locator("tr.detail figure").count()
    tab.see("tr.detail figure:last-child")
    assert tab.is_quiet()


@pytest.mark.skipif(not RESULTS.is_dir(), reason="an installed package has no results")
def test_the_committed_results_open(browser: Any, tmp_path: Path) -> None:
    file = write_page(read_runs([RESULTS]), tmp_path)
    tab = Tab(browser, file, timed=True)
    rows = tab.section.locator("tbody tr[data-row]").count()
    check_size(tab, file, 4e6, rows)
    for link in tab.page.locator("nav a").all():  # every data set can be looked at
        link.click()
        tab.page.wait_for_selector(
            f"html[data-drawn={link.get_attribute('href')[1:]}]", state="attached"
        )
    assert tab.is_quiet()
    tab.context.close()


@pytest.mark.parametrize(("count", "most"), [(200, 4e6), (2000, 8e6)])
def test_many_records_open(
    open_page: Callable[..., Tab], tmp_path: Path, make_record: Make, count: int, most: float
) -> None:
    """Even if no two of them are of one group."""
    records = [make_record(m, settings={"lr": n + 1.0}) for m in "abcd" for n in range(count // 4)]
    tab = open_page(records, timed=True)
    check_size(tab, tmp_path / "page" / "index.html", most, count)
    tab.section.locator("input.filter").fill("c lr=7 ")
    assert tab.section.locator("tbody tr[data-row]:visible").count() >= 1
    assert tab.column("method") == ["c"] * len(tab.column("method"))
