"""Whether results/ still tells the numbers that it told: `python bench/same_numbers.py REVISION`.

Every cell of every table, every listed difference and every command on the pages of an earlier
revision must stand on a page of today, under the same two headings and in a row of the same names.
Every number of today's RESULTS.md must be one of a study's page. Hours are left out: they are
projections. Prints what is missing or changed and ends with 1 unless that is nothing but verdicts
of claims that had none.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = re.compile(r"results/(.+/)?(RESULTS|PAPER)\.md")
NAMES = {
    "updates", "method", "settings", "read-out", "memory", "number", "setting", "compared",
    "choice", "components", "claim", "stream",
}  # fmt: skip
TITLES = {"Results", "The paper's numbers and claims"}  # of pages with more than one study
PROJECTED = {"hours"}


# Settings whose names or values are others today; those that say nothing are left out.
RENAMED = {
    "steps=": "updates=", "watched=0": "mixture_replay=all", "watched=": "mixture_replay=",
    "reoffer=": "offer_every_epoch=", "--steps": "--updates", "--watched 0": "--mixture-replay all",
    "--watched": "--mixture-replay", "--reoffer": "--offer-every-epoch",
    "--no-reoffer": "--no-offer-every-epoch", "fit task": "objective task-em",
    "admission=flood": "admission=closest", "fit refit": "objective refit-em",
    "fit follow": "objective sinkhorn",
}  # fmt: skip
LEFT_OUT = re.compile(
    r"(?:, )?\b(fit|average|objective|(dual\.)?(temperature|pairing))=[a-z0-9.-]+(?=, |$)"
)


def today(text: str) -> str:
    """In today's names, lists of settings in one order."""
    text = text.replace("\\_", "_")
    for old, new in RENAMED.items():
        text = text.replace(old, new)
    text = LEFT_OUT.sub("", text).removeprefix(", ")
    return ", ".join(sorted(text.split(", "))) if "=" in text else text


class Fact(NamedTuple):
    """One cell: where it stands, which row, and what it says."""

    place: tuple[str, ...]
    row: tuple[tuple[str, str], ...]
    column: str
    value: str


def pages_of(revision: str) -> dict[str, str]:
    """Path -> text of the Markdown pages of a revision."""
    listed = _git("ls-tree", "-r", "--name-only", revision, "results").splitlines()
    return {path: _git("show", f"{revision}:{path}") for path in listed if PAGES.fullmatch(path)}


def pages_of_today() -> dict[str, str]:
    found = {p.relative_to(ROOT).as_posix(): p for p in (ROOT / "results").rglob("*.md")}
    return {n: p.read_text(encoding="utf-8") for n, p in found.items() if PAGES.fullmatch(n)}


def facts(page: str) -> Iterator[Fact]:
    """Cells of tables; listed differences and commands as cells of their own."""
    path: list[str] = []
    columns: list[str] = []
    code = False
    for line in page.splitlines():
        code ^= line.startswith("```")
        place = tuple([title for title in path if title not in TITLES][-2:])
        if code and not line.startswith("```"):
            yield Fact(place, (), "command", today(line))
        elif heading := re.match(r"(#+) (.*)", line):
            path = [*path[: len(heading[1]) - 1], heading[2]]
            columns = []
        elif line.startswith("- ") and re.search(r"[+-]\d", line):
            yield Fact(place, (), "difference", today(line))
        elif line.startswith("| "):
            cells = [today(cell.strip().strip("*")) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not columns:
                columns = ["updates" if cell == "steps" else cell for cell in cells]
            elif set(line) - set("|:- "):
                row = dict(zip(columns, cells, strict=True))
                names = tuple(sorted((k, v) for k, v in row.items() if k in NAMES))
                for column in row.keys() - NAMES - PROJECTED:
                    yield Fact(place, names, column, row[column])
        else:
            columns = []


def lost(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    """What the earlier pages say and today's do not."""
    known = {fact for page in after.values() for fact in facts(page)}
    values: dict[tuple[object, ...], set[str]] = {}
    for fact in known:
        values.setdefault(fact[:3], set()).add(fact.value)
    for name, page in before.items():
        for fact in dict.fromkeys(facts(page)):
            now = " / ".join(sorted(values.get(fact[:3], set())))[:200] or "nothing"
            named = dict(fact.row)
            where = f"{name}: {' > '.join(fact.place)}: {named or ''} {fact.column}"
            if fact not in known and not (fact.column == "verdict" and fact.value == "untested"):
                yield f"{where}: {fact.value!r}, now {now}"


def foreign(today: dict[str, str]) -> Iterator[str]:
    """Rows of RESULTS.md with a number that no study's page has for this method and accuracy."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = {}
    for name, page in today.items():
        if name.count("/") > 1:
            for row in _rows(page):
                rows.setdefault((row["method"], row["accuracy"]), []).append(row)
    for row in _rows(today["results/RESULTS.md"]):
        sources = rows.get((row["method"], row["accuracy"]), [])
        shared = ("forgetting", "images/step", "MB held", "seconds", "runs")
        fits = any(all(s.get(k, row[k]) == row[k] for k in shared if k in row) for s in sources)
        if not fits:
            yield f"results/RESULTS.md: {row} is on no page of a study"


def _rows(page: str) -> list[dict[str, str]]:
    found: dict[tuple[object, ...], dict[str, str]] = {}
    for place, names, column, value in facts(page):
        found.setdefault((place, names), dict(names))[column] = value
    return [row for row in found.values() if "method" in row and "accuracy" in row]


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, encoding="utf-8"
    ).stdout


if __name__ == "__main__":
    earlier, now = pages_of(sys.argv[1]), pages_of_today()
    count = sum(len(list(facts(page))) for page in earlier.values())
    problems = [*lost(earlier, now), *foreign(now)]
    print("\n".join(problems[:200]))
    print(
        f"{count} facts on {len(earlier)} pages then, {len(now)} pages now: {len(problems)} lost."
    )
    sys.exit(bool(problems))
