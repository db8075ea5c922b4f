"""Which tests can notice a fault, and whether they do, for `mutants.py`.

The tests of a fault run in a child of this process, which has the large packages imported but not
ocil, on a copy of the sources that holds the fault. The first failure ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mutants_draw import Fault

SECONDS = 40.0  # of the tests that one fault may ask for, as timed without a fault
AS_LONG = 10  # times that, and at least `LEAST`, until a fault that hangs counts as noticed
LEAST = 60.0
QUIET = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis is imported already
COPIED = ("src", "tests", "bench", "pyproject.toml")


class Test(NamedTuple):
    name: str
    seconds: float
    lines: dict[str, set[int]]

    @property
    def file(self) -> str:
        return self.name.split("::")[0]


class Outcome(NamedTuple):
    """How it ended: a test that failed, `time` or `import`; empty if nothing noticed the fault."""

    noticed: str
    tests: int
    seconds: float


def read_map(paths: Iterable[Path]) -> list[Test]:
    """What `mutants_trace` wrote; tests that failed without a fault cannot notice one."""
    found: dict[str, Test] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            lines = {file: set(numbers) for file, numbers in row["lines"].items()}
            found[row["test"]] = Test(row["test"], row["seconds"], lines)
            if not row["ok"]:
                del found[row["test"]]
    return list(found.values())


def can_notice(fault: Fault, tests: Sequence[Test]) -> list[Test]:
    """Tests that execute the line, those of the file's own test file first, then the quickest.

    What is executed at import concerns all tests that execute something of the file. Where no test
    is seen to execute the line (it may run in another process), those of its package are taken.
    """
    wanted = set(range(fault.line, fault.last + 1))
    if fault.inside:
        chosen = [t for t in tests if not wanted.isdisjoint(t.lines.get(fault.file, ()))]
    else:
        chosen = [t for t in tests if len(t.lines.get(fault.file, ())) > 2]
    path = Path(fault.file)
    folder = f"tests/{path.parent.name}/" if path.parent.name != "ocil" else "tests/"
    mirror = f"{folder}test_{path.stem}"
    if not chosen:
        chosen = [t for t in tests if t.name.startswith((mirror, fault.file))]
        chosen = chosen or [t for t in tests if t.name.startswith(folder)]
    chosen.sort(key=lambda t: (not t.name.startswith((mirror, fault.file)), t.seconds))
    kept, left = [], SECONDS
    for test in chosen:
        if test.seconds <= left:
            kept.append(test)
            left -= test.seconds
    return kept


class Tree:
    """A copy of the sources and tests in which one file at a time is wrong."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.place = root, place
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        for entry in root.iterdir():
            if entry.name in COPIED:
                copy = shutil.copytree if entry.is_dir() else shutil.copy2
                copy(entry, place / entry.name)
            elif entry.name not in (".git", ".venv", ".mutants", "runs", "report"):
                (place / entry.name).symlink_to(entry)

    @contextlib.contextmanager
    def broken(self, fault: Fault) -> Iterator[None]:
        path, good = self.place / fault.file, self.root / fault.file
        path.write_text(fault.apply(good.read_text()))
        try:
            yield
        finally:
            shutil.copy2(good, path)


class Chooser:
    """Keeps the wanted tests, in their order, and writes down the first that fails."""

    def __init__(self, names: Sequence[str], said: Path) -> None:
        self.rank, self.said = {name: i for i, name in enumerate(names)}, said

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.rank), key=self.order)

    def order(self, item: pytest.Item) -> int:
        return self.rank[item.nodeid]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.said.write_text(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.said.write_text("import")


def child(tree: Tree, tests: Sequence[Test]) -> None:
    """Run the tests on the tree; never returns."""
    code = 3
    try:
        os.setsid()
        os.chdir(tree.place)
        os.environ["PYTHONPATH"] = str(tree.place / "src")

        sys.path.insert(0, str(tree.place / "src"))
        with open(tree.place / ".out", "w") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        files = sorted({test.file for test in tests})
        flags = ["-x", "-p", "no:cacheprovider", "-W", QUIET, f"--basetemp={tree.place / '.temp'}"]
        names = [test.name for test in tests]
        code = int(pytest.main([*flags, *files], [Chooser(names, tree.place / ".said")]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Running:
    """One fault under test."""

    def __init__(self, tree: Tree, fault: Fault, tests: Sequence[Test]) -> None:
        self.tree, self.fault, self.tests = tree, fault, tests
        (tree.place / ".said").unlink(missing_ok=True)
        self.began = time.monotonic()
        self.limit = max(LEAST, AS_LONG * sum(t.seconds for t in tests))
        self.breaking = tree.broken(fault)
        self.breaking.__enter__()
        self.pid = os.fork()
        if not self.pid:
            child(tree, tests)

    def ended(self) -> Outcome | None:
        """The outcome, or None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        seconds, said = time.monotonic() - self.began, ""
        if not pid:
            if seconds < self.limit:
                return None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            said = "time"
        elif (code := os.waitstatus_to_exitcode(status)) != 0:
            written = self.tree.place / ".said"
            said = written.read_text() if written.exists() else f"exit code {code}"
            if code in (3, 4, 5):  # pytest's own: the tests did not run
                output = (self.tree.place / ".out").read_text()
                raise SystemExit(f"The tests of {self.fault.file} do not run:\n{output}")
        self.breaking.__exit__(None, None, None)
        return Outcome(said, len(self.tests), round(seconds, 1))


def run_all(trees: list[Tree], todo: list[tuple[int, Fault, list[Test]]]) -> Iterator[Any]:
    """(number, outcome) of each fault as they end, as many at once as there are trees."""
    free, running, todo = list(trees), dict[int, Running](), todo[::-1]
    while todo or running:
        while free and todo:
            number, fault, tests = todo.pop()
            if not tests:
                yield number, Outcome("", 0, 0.0)
                continue
            running[number] = Running(free.pop(), fault, tests)
        for number, one in list(running.items()):
            outcome = one.ended()
            if outcome is not None:
                free.append(running.pop(number).tree)
                yield number, outcome
        time.sleep(0.02)
