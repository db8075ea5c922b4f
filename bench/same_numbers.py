"""Whether results/ still tells the numbers that it told: `python bench/same_numbers.py REVISION`.

Every cell of every table and every command on the pages of an earlier revision must stand on a page
of today, under the same two headings and in a row of the same names; a number that was typed into a
study's text, on that study's page. Every number of today's RESULTS.md must be one of a study's
page. Left out: projected hours, the settings a row is told by and the trials, which change as runs
are added, and the paper's claims, which are judged anew when they are (`claims:` lists them).
Prints what is missing or changed, and ends with 1 unless that is nothing.
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
CLAIMS = "The paper's claims"
LOOSE = {"hours", "trials"}


# Settings whose names or values are others today; those that say nothing are left out.
RENAMED = {
    "steps=": "updates=", "watched=0": "mixture_replay=all", "watched=": "mixture_replay=",
    "reoffer=": "offer_every_epoch=", "--steps": "--updates", "--watched 0": "--mixture-replay all",
    "--watched": "--mixture-replay", "--reoffer": "--offer-every-epoch",
    "--no-reoffer": "--no-offer-every-epoch", "fit task": "objective task-em",
    "admission=flood": "admission=closest", "fit refit": "objective refit-em",
    "fit follow": "objective sinkhorn", "em --average stepwise": "stepwise-em",
    "--preset paper-literal ": "--preset paper-literal-0.1 ",
    "--preset paper ": "--preset paper-0.1 ",
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
            # OTC's default has an anchor and its read-out since: these flags are written out now.
            plain = re.sub(r" --(anchor|readout) \S+", "", line)
            yield Fact(place, (), "command", today(plain))
        elif heading := re.match(r"(#+) (.*)", line):
            path = [*path[: len(heading[1]) - 1], heading[2]]
            columns = []
        elif found := re.match(r"- (\S+, \S+, memory \d+) .*?: (\w+ [+-][\d.]+)\. ", line):
            yield Fact(place, (), "difference", f"{found[1]}: {found[2]}")
        elif line.startswith("| "):
            cells = [today(cell.strip().strip("*")) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not columns:
                columns = ["updates" if cell == "steps" else cell for cell in cells]
            elif set(line) - set("|:- "):
                row = dict(zip(columns, cells, strict=True))
                names = tuple(sorted((k, v) for k, v in row.items() if k in NAMES))
                for column in row.keys() - NAMES - LOOSE:
                    yield Fact(place, names, column, row[column])
        else:
            columns = []


def lost(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    """What the earlier pages say and today's do not."""
    values: dict[tuple[object, ...], set[str]] = {}
    typed: dict[str, str] = {}
    for page in after.values():
        for fact in facts(page):
            values.setdefault(key(fact), set()).add(fact.value)
            typed[fact.place[0]] = page
    for name, page in before.items():
        for fact in dict.fromkeys(facts(page)):
            there = values.get(key(fact), set())
            numbers = re.findall(r"\d+\.\d+", fact.value)
            by_hand = not fact.row and fact.column != "command"
            if fact.value in there or (fact.column, fact.value) == ("verdict", "untested"):
                continue
            if by_hand and all(number in typed.get(fact.place[0], "") for number in numbers):
                continue
            where = f"{name}: {' > '.join(fact.place)}: {dict(fact.row) or ''} {fact.column}"
            now = " / ".join(sorted(there))[:200] or "nothing"
            claims = "claims: " if CLAIMS in fact.place else ""
            yield f"{claims}{where}: {fact.value!r}, now {now}"


def key(fact: Fact) -> tuple[object, ...]:
    """Where a fact stands and in which row, without the settings that tell the row."""
    return fact.place, tuple(name for name in fact.row if name[0] != "settings"), fact.column


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
    claims = [problem for problem in problems if problem.startswith("claims: ")]
    print("\n".join(problems))
    print(f"{count} facts on {len(earlier)} pages then, {len(now)} pages now:", end=" ")
    print(f"{len(problems) - len(claims)} lost, {len(claims)} of claims judged anew.")
    sys.exit(len(problems) > len(claims))
