"""The page in a browser: headless Chromium, if it is installed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ocil.report.page import write_page

pytest.importorskip("jinja2")
pytest.importorskip("plotly")
playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)"),
]
Make = Callable[..., dict[str, Any]]
PATIENCE = 180_000  # milliseconds; plotly starts slowly where processors are busy


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as tool:
        chromium = tool.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


class Tab:
    """A page with all that it said and asked for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.context = browser.new_context(
            **({"viewport": {"width": 1280, "height": 900}} | options)
        )
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda said: self.problems.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())

    def live(self, place: int = 0) -> Any:
        """A picture, once plotly has drawn it."""
        stage = self.page.locator(".stage:visible").nth(place)
        stage.scroll_into_view_if_needed()
        stage.locator("xpath=self::*[contains(@class, 'live')]").wait_for()
        return stage

    def column(self, number: int, table: int = 0) -> list[str]:
        rows = self.page.locator("table.sortable").nth(table).locator("tbody tr")
        return [row.locator("td").nth(number).inner_text() for row in rows.all()]


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def opened(records: list[dict[str, Any]], **options: Any) -> Tab:
        paths = [tmp_path / "runs" / str(i) / "record.json" for i in range(len(records))]
        file = write_page(list(zip(paths, records, strict=True)), tmp_path / "page")
        tabs.append(Tab(browser, file, **options))
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.context.close()


@pytest.fixture
def records(make_record: Make) -> list[dict[str, Any]]:
    """Three methods and three seeds at a memory of 500, and one run at 1 500."""
    shifts = (("er", 0), ("otc", 4), ("scr", -20))
    found = [make_record(m, seed=s, shift=d + s % 2) for m, d in shifts for s in (0, 1, 2)]
    return [*found, make_record("otc", memory=1500, shift=3)]


def test_it_opens_without_a_complaint_and_asks_for_nothing(
    open_page: Callable[..., Tab], records: list[dict[str, Any]]
) -> None:
    tab = open_page(records)
    for place in range(3):
        tab.live(place)
    assert tab.problems == []
    assert len(tab.requests) == 1
    assert tab.requests[0].startswith("file://")


def test_columns_sort_by_mouse_and_by_keyboard(
    open_page: Callable[..., Tab], records: list[dict[str, Any]]
) -> None:
    tab = open_page(records)
    head = tab.page.locator("table.sortable").first.locator("th")
    accuracy = [text.split()[0] for text in head.all_inner_texts()].index("accuracy")

    def numbers() -> list[float]:
        return [float(cell.split()[0]) for cell in tab.column(accuracy)]

    assert numbers() != sorted(numbers())
    head.nth(accuracy).get_by_role("button").click()
    assert numbers() == sorted(numbers(), reverse=True)
    assert head.nth(accuracy).get_attribute("aria-sort") == "descending"
    tab.page.keyboard.press("Enter")  # the button has the focus
    assert numbers() == sorted(numbers())
    assert head.nth(accuracy).get_attribute("aria-sort") == "ascending"
    head.first.get_by_role("button").focus()
    tab.page.keyboard.press("Space")
    assert tab.column(0) == ["er", "otc", "otc", "scr"]
    assert head.nth(accuracy).get_attribute("aria-sort") is None


def test_what_was_not_measured_sorts_last_both_ways(
    open_page: Callable[..., Tab], make_record: Make
) -> None:
    joint = make_record("joint", joint=True)  # has no forgetting
    tab = open_page([make_record("er"), joint, make_record("otc", shift=5, data="mnist")])
    head = tab.page.locator("table.sortable").first.locator("th")
    forgetting = [text.split()[0] for text in head.all_inner_texts()].index("forgetting")
    for _ in range(2):
        head.nth(forgetting).get_by_role("button").click()
        assert tab.column(forgetting)[-1] == "–"


def test_tooltips_tell_the_number_and_marks_lead_to_the_runs(
    open_page: Callable[..., Tab], records: list[dict[str, Any]]
) -> None:
    tab = open_page(records)
    stage = tab.live(0)
    stage.locator(".points path.point").first.hover(force=True)
    tip = tab.page.locator(".hoverlayer .hovertext").first
    tip.wait_for()
    said = tip.text_content()
    assert said.startswith("otc")
    assert "89.33" in said and "95 % interval" in said and "3 runs" in said
    tab.page.mouse.down()
    tab.page.mouse.up()
    tab.page.wait_for_function("location.hash !== ''")
    card = tab.page.locator("details.card", has=tab.page.locator(tab.page.url[-5:]))
    assert card.get_attribute("open") is not None
    assert tab.problems == []


def test_a_number_opens_the_card_with_its_runs(
    open_page: Callable[..., Tab], make_record: Make
) -> None:
    tab = open_page([make_record(settings={"steps": n}) for n in range(1, 8)])
    assert tab.page.locator("details.card[open]").count() == 0
    tab.page.locator("table.sortable tbody a").nth(4).click()
    tab.page.locator("details.card[open]").wait_for()
    card = tab.page.locator("details.card[open]")
    assert card.count() == 1
    assert card.get_by_text("ocil run er --data mnist --seed 0").is_visible()
    assert card.get_by_role("link", name="record.json").is_visible()


def test_commands_are_copied_a_line_each(open_page: Callable[..., Tab], make_record: Make) -> None:
    tab = open_page([make_record(seed=s) for s in (0, 1)])
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.page.get_by_role("button", name="Copy").click()
    tab.page.get_by_role("button", name="Copied").wait_for()
    copied = tab.page.evaluate("navigator.clipboard.readText()")
    assert copied == "".join(f"ocil run er --data mnist --seed {s}\n" for s in (0, 1))


def test_hostile_text_shows_as_text_in_tables_pictures_and_tooltips(
    open_page: Callable[..., Tab], hostile_record: dict[str, Any], make_record: Make
) -> None:
    markup = "<b>b</b><a href='https://a.b'>c</a>&lt;"  # plotly knows these
    tab = open_page([hostile_record, make_record(markup, data=hostile_record["data"], shift=3)])
    stage = tab.live(0)
    names = ["<script>alert(1)</script>|$x^2$ [red]", markup]
    labels = stage.locator(".annotation-text").all_text_contents()
    tips = []
    for point in stage.locator(".points path.point").all():
        tip = tab.page.locator(".hoverlayer .hovertext").first
        tab.page.mouse.move(1, 1)  # the tip of the point before must be gone
        tip.wait_for(state="detached")
        point.hover(force=True)
        tip.wait_for()
        tips.append(tip.text_content())
    for name in names:
        assert name in tab.page.locator("table.sortable").first.inner_text()
        assert name in tab.page.locator(".legend").first.inner_text()
        assert [label for label in labels if label.startswith(name)]
        assert [tip for tip in tips if tip.startswith(name)]
    assert tab.page.locator("a[href*='a.b']").count() == 0
    assert tab.problems == []
    assert len(tab.requests) == 1


def test_the_policy_stops_a_script_that_slipped_in(
    open_page: Callable[..., Tab], browser: Any, tmp_path: Path, make_record: Make
) -> None:
    open_page([make_record()])
    file = tmp_path / "page" / "index.html"
    bad = "<script>window.bad = 1</script><img src=x onerror='window.bad = 1'>"
    bad += "<iframe src='https://example.org/'></iframe>"
    file.write_text(file.read_text(encoding="utf-8").replace("<main>", f"<main>{bad}"))
    tab = Tab(browser, file)
    tab.live(0)
    assert tab.page.evaluate("window.bad === undefined")
    assert [p for p in tab.problems if "Content Security Policy" in p]
    assert not [url for url in tab.requests if url.startswith("http")]
    tab.context.close()


def test_the_legend_hides_a_series_in_every_picture_of_its_block(
    open_page: Callable[..., Tab], records: list[dict[str, Any]]
) -> None:
    tab = open_page(records)
    stage = tab.live(0)
    before = stage.locator(".points path.point").count()
    tab.page.locator(".block .legend label").first.click()
    tab.page.wait_for_function(
        "n => document.querySelector('.stage.live').querySelectorAll('.points path.point').length"
        " === n - 1",
        arg=before,
    )
    hidden = tab.page.locator(".block .still g.off").count()
    pictures = tab.page.locator(".block").first.locator(".chart").count()
    assert hidden == pictures - 1  # the best method is the reference of the differences


def test_the_reference_of_the_differences_can_be_changed(
    open_page: Callable[..., Tab], records: list[dict[str, Any]]
) -> None:
    tab = open_page(records)
    stage = tab.live(2)
    figure = tab.page.locator("figure", has=tab.page.locator(".choose"))
    choice = figure.locator("select")
    assert choice.locator("option").all_text_contents() == ["otc", "er", "scr"]
    assert stage.locator(".annotation-text").all_text_contents() == ["er", "scr"]
    choice.select_option(label="scr")
    stage.locator(".annotation-text", has_text="otc").wait_for()
    assert stage.locator(".annotation-text").all_text_contents() == ["otc", "er"]


def test_without_scripts_tables_and_pictures_are_there(
    open_page: Callable[..., Tab], records: list[dict[str, Any]]
) -> None:
    tab = open_page(records, java_script_enabled=False)
    assert tab.column(0) == ["er", "otc", "scr", "otc"]
    assert tab.page.locator(".block .still:visible").count() == 6
    assert tab.page.locator(".choose:visible, button:visible").count() == 0
    tab.page.locator("table.sortable tbody a").first.click()
    assert tab.page.get_by_text("ocil run er --data mnist --seed 0").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_without_scrolling_sideways(
    open_page: Callable[..., Tab], records: list[dict[str, Any]], scheme: str
) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    long = records[0] | {"method": "m" * 300, "seed": 7}
    tab = open_page([*records, long], color_scheme=scheme, **phone)
    tab.live(0)
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390
    ink = tab.page.evaluate("getComputedStyle(document.body).color")
    paper = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    level = [np.mean([int(v) for v in c[4:-1].split(",")]) for c in (ink, paper)]
    assert (level[0] < level[1]) == (scheme == "light")
    drawn = tab.page.locator(".stage.live .xtick text").first
    assert drawn.evaluate("e => getComputedStyle(e).fill") != paper
    assert tab.problems == []


def test_print_shows_the_still_pictures_and_closed_cards(
    open_page: Callable[..., Tab], records: list[dict[str, Any]]
) -> None:
    tab = open_page(records)
    stage = tab.live(0)
    tab.page.emulate_media(media="print")
    assert stage.locator(".still").is_visible()
    assert not stage.locator(".plot").is_visible()
    assert tab.page.pdf()[:4] == b"%PDF"


def test_200_records_open(open_page: Callable[..., Tab], make_record: Make) -> None:
    """How long it takes is printed by bench/page.py."""
    tab = open_page([make_record(m, settings={"steps": n}) for m in "abcd" for n in range(50)])
    assert tab.page.locator("table.sortable").first.locator("tbody tr").count() == 200
    tab.live(0)
    field = tab.page.get_by_placeholder("Search 200 rows")
    field.fill("steps=7 c")
    shown = tab.page.locator("table.sortable").first.locator("tbody tr:visible")
    assert shown.count() == 1
    assert tab.problems == []
