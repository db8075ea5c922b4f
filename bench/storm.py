"""`make storm`: every storm in full; the report is results/bench/storm.md; 1 after a violation."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from storms import Storm, cluster, files, learn

REPORT = Path(__file__).parents[1] / "results" / "bench" / "storm.md"
# what to call, how often, what counts as a violation
STORMS: list[tuple[Callable[[int, Path], Storm], int, str]] = [
    (learn.concurrent, 50, "two `ocil learn` on one model: a sample lost, or a file left over"),
    (learn.interrupts, 30, "Ctrl-C in `ocil learn`: a sample lost or learned twice, another state"),
    (learn.kills, 30, "`kill -9` in `ocil learn`: the same, a model not whole, a file left over"),
    (
        cluster.kills,
        20,
        "runs, workers, nodes killed in a study: a record lost, wrong or made twice",
    ),
    (
        files.damaged,
        3000,
        "damaged files: neither a sentence nor the right data, a signal, 5 s, 1 GB",
    ),
]


def main() -> None:
    rows, violations = [], []
    for storm, times, what in STORMS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = storm(times, Path(folder))
        seconds = time.monotonic() - began
        seen = "; ".join(f"{n} {name}" for name, n in found.seen.items())
        count = len(found.violations)
        rows.append(f"| {what} | {found.times} | {count} | {seconds:.0f} | {seen} |")
        print(rows[-1], flush=True)
        violations += found.violations
    REPORT.write_text(report(rows, violations))
    if violations:
        print(*violations[:20], sep="\n", file=sys.stderr)
        sys.exit(1)


def report(rows: list[str], violations: list[str]) -> str:
    """The page: a row a storm, then the violations."""
    head = [
        "# Storms",
        "",
        f"`make storm` (`python bench/storm.py`), Python {platform.python_version()}, "
        f"{os.cpu_count()} cores.",
        "",
        "| storm, and what would be a violation | times | violations | seconds | seen |",
        "|---|---:|---:|---:|---|",
    ]
    return "\n".join([*head, *rows, *[f"\n- {text}" for text in violations]]) + "\n"


if __name__ == "__main__":
    main()
