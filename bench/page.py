"""What a page of 200 records weighs and how long it takes to open: `python bench/page.py results`.

Printed are the time that `ocil report` takes, the size of the page and, where Chromium is
installed, the time until it has loaded and until the first picture answers to the mouse: by the
clock and by the processor time of all of Chromium's processes. Medians over the rounds.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ocil.report.page import write_page
from ocil.run.reading import find_records

Seconds = tuple[float, float]  # by the clock, by the processor


def processor(browser: Any) -> float:
    """Processor time of all processes of the browser so far."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return sum(process["cpuTime"] for process in found)


def opened(browser: Any, page_file: Path) -> tuple[Seconds, Seconds]:
    """Until the page has loaded, and until its first picture is interactive."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    before = processor(browser)
    began = time.perf_counter()
    page.goto(page_file.as_uri(), wait_until="load")
    loaded = time.perf_counter() - began, processor(browser) - before
    page.locator(".stage").first.scroll_into_view_if_needed()
    page.locator(".stage.live").first.wait_for(timeout=120_000)
    live = time.perf_counter() - began, processor(browser) - before
    page.close()
    return loaded, live


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results"))
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    records = find_records(options.folder)[: options.records]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter(), time.process_time()
        file = write_page(records, folder)
        spent = time.perf_counter() - began[0], time.process_time() - began[1]
        print(f"{len(records)} records, {file.stat().st_size / 1e6:.2f} MB")
        print(f"{'':<28}{'clock s':>9}{'cpu s':>9}")
        print(f"{'ocil report':<28}{spent[0]:9.2f}{spent[1]:9.2f}")
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        if path is None:
            print("Chromium is not installed, so the page was not opened.")
            return
        from playwright.sync_api import sync_playwright

        with sync_playwright() as tool:
            browser = tool.chromium.launch(executable_path=path, args=["--no-sandbox"])
            rounds = [opened(browser, file) for _ in range(options.rounds)]
            browser.close()
        for row, label in enumerate(("loaded", "first picture interactive")):
            clock, cpu = (statistics.median(r[row][k] for r in rounds) for k in (0, 1))
            print(f"{label:<28}{clock:9.2f}{cpu:9.2f}")


if __name__ == "__main__":
    main()
