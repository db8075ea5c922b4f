"""What a page weighs and how long it takes to open: `python bench/page.py results`.

Printed are the time that `ocil report` takes, the size of the page and, where Chromium is
installed, the time until its tables answer and until each picture of the first data set is drawn.
By the clock, which other processes disturb (the load is printed), and as processor time of the
thread that runs the page, from Chromium's own trace. Medians over the rounds. With --records so
many, repeated under other seeds where there are fewer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ocil.report.page import write_page
from ocil.report.runs import Run, read_runs

STAGES = ("tables answer", "first picture", "second picture", "third picture")


def opened(browser: Any, page_file: Path) -> list[tuple[float, float]]:
    """Seconds until each of the stages: by the clock, and of processor time."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    browser.start_tracing(page=page, categories=["blink.user_timing"])
    page.goto(page_file.as_uri(), wait_until="commit")
    drawn = """() => {  // as many as the screen shows: none came for a second
        const last = performance.getEntriesByName('picture').pop();
        return last && performance.now() - last.startTime > 1000;
    }"""
    page.wait_for_function(drawn, polling=50, timeout=300_000)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    spent = [e["tts"] / 1e6 for e in events if e["name"] in ("usable", "picture")]
    clock = page.evaluate("performance.getEntriesByType('mark').map((m) => m.startTime / 1000)")
    page.close()
    return list(zip(clock, spent, strict=True))


def repeated(runs: list[Run], count: int) -> list[Run]:
    """So many runs, with other seeds where they are not enough."""
    found = []
    for n in range(count):
        run = runs[n % len(runs)]
        more = 1000 * (n // len(runs))
        found.append(Run({**run.record, "seed": run.seed + more}, run.path, run.name))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("results"))
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    runs = read_runs([options.folder])
    runs = repeated(runs, options.records) if options.records else runs
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter(), time.process_time()
        file = write_page(runs, folder)
        spent = time.perf_counter() - began[0], time.process_time() - began[1]
        load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
        print(f"{len(runs)} records, {file.stat().st_size / 1e6:.2f} MB; {load}")
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
        for row, label in enumerate(STAGES[: min(map(len, rounds))]):
            clock, cpu = (statistics.median(r[row][k] for r in rounds) for k in (0, 1))
            print(f"{label:<28}{clock:9.2f}{cpu:9.2f}")


if __name__ == "__main__":
    main()
