"""A pytest plugin that writes down which lines each test executes and how long that takes.

    MUTANTS_TRACE=FILE python -m pytest -p mutants_trace

One line of JSON a test: its name, how it ended, its seconds, and {file: lines} under `WATCHED`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

WATCHED = "/src/ocil/"


class Tracer:
    """Lines of the watched files that were executed since the last `take`."""

    def __init__(self) -> None:
        self.seen: dict[str, set[int]] = {}
        self.files: dict[str, str | None] = {}

    def short(self, path: str) -> str | None:
        if path not in self.files:
            at = path.find(WATCHED)
            self.files[path] = path[at + 1 :] if at >= 0 else None
        return self.files[path]

    def call(self, frame: FrameType, event: str, arg: Any) -> Any:
        file = self.short(frame.f_code.co_filename)
        if file is None:
            return None
        lines = self.seen.setdefault(file, set())

        def line(frame: FrameType, event: str, arg: Any) -> Any:
            lines.add(frame.f_lineno)
            return line

        lines.add(frame.f_lineno)
        return line

    def take(self) -> dict[str, list[int]]:
        found = {file: sorted(lines) for file, lines in self.seen.items()}
        self.seen.clear()
        return found


def processor_seconds() -> float:
    """Of this process and of those it waited for: other work on the machine does not count."""
    return sum(os.times()[:4])


class Plugin:
    def __init__(self, path: str) -> None:
        self.tracer, self.file = Tracer(), open(path, "a")  # noqa: SIM115
        self.failed = False

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.tracer.take()
        self.failed = False
        begin = processor_seconds()
        threading.settrace(self.tracer.call)
        sys.settrace(self.tracer.call)
        yield
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        seconds = round(processor_seconds() - begin, 4)
        row = {"test": item.nodeid, "ok": not self.failed, "seconds": seconds}
        self.file.write(json.dumps(row | {"lines": self.tracer.take()}) + "\n")
        self.file.flush()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed


def pytest_configure(config: pytest.Config) -> None:
    if "MUTANTS_TRACE" in os.environ:
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")  # two processes do not share a file
        config.pluginmanager.register(Plugin(os.environ["MUTANTS_TRACE"] + worker))
