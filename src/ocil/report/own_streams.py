"""Tables of the study `own-streams`, from the lines of ROOT/own-streams/STREAM.jsonl.

A method but for `classifier` and `offline` is named with the features it has: slda-raw, slda-fixed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ocil import text
from ocil.files import read_plain
from ocil.report.groups import Summary, summarise
from ocil.report.render import NOTHING, Cell, Strong, Table, to_markdown
from ocil.report.results import NAME, introduction
from ocil.report.tables import measured, rounded
from ocil.run.metrics import paired_difference
from ocil.run.reading import MAX_BYTES, is_json
from ocil.study.grid import OWN_STREAMS as FOLDER

TITLE = "Your own stream: Classifier() as it is, and what a person would use instead"
OURS, OFFLINE = "classifier", "offline"
TITLES = {OURS: "Classifier()", OFFLINE: "offline logistic"}
ORDERS = {"classes": "class by class", "shuffled": "shuffled"}
PARTS = ("chosen on", "seen before", "confirms")  # of streams, in the order they are shown
KEYS: dict[type, str] = {
    str: "data part order method split command",
    int: "seed memory learned asked bytes_held",
    float: "accuracy seconds",
}
UNCERTAIN = ("calibration_error", "score")  # numbers that may be missing
ABOUT = """\
Made by `make results`; do not edit. Accuracy is that of the test part at the end of the stream, in
percent, mean ± standard deviation over seeds; differences are paired by seed, with their 95 %
interval. raw: samples as they come; fixed: the features of the anchor's encoder. Calibration error
has 15 bins and is told from 1 000 samples asked on; the next column is the distance of what the
classifier says of itself (`score_`) from its accuracy. Seconds are of learning, up to the first
answer. The tables of all streams show each method on the features that suit it best there.
Defaults were chosen on held-out parts of the streams "chosen on"; test figures of those "seen
before" were seen in trials; those that confirm were run once, after the defaults were fixed.
"""
MIN_SEEDS = 3  # from which an interval is told
FAR = 1.0  # points that are too many to be below the best rival

Record = Mapping[str, Any]
_log = logging.getLogger(__name__)


def read_file(file: Path) -> list[dict[str, Any]]:
    """The sound lines of a file; none where there is no file."""
    content = read_plain(file, MAX_BYTES) if file.is_file() else b""
    found = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            found.append(_checked(json.loads(line)))
        except (ValueError, LookupError, TypeError, RecursionError):
            _log.warning("Left out: line %d of %s is no record; run the study again.", number, file)
    return found


def _checked(record: dict[str, Any]) -> dict[str, Any]:
    """The record, or an error."""
    sound = [is_json(record[key], kind) for kind, keys in KEYS.items() for key in keys.split()]
    sound += [record[key] is None or is_json(record[key], float) for key in UNCERTAIN]
    if not all(sound) or record["part"] not in PARTS or record["order"] not in ORDERS:
        raise ValueError("a value is wrong")
    return record


def read(root: Path) -> list[dict[str, Any]]:
    """All records below a folder of results."""
    files = sorted((root / FOLDER).glob("*.jsonl"))
    return [record for file in files for record in read_file(file)]


class Trials:
    """The records of one split and one order of the samples."""

    def __init__(self, records: Sequence[Record], split: str, order: str) -> None:
        self.by: dict[str, dict[str, dict[int, Record]]] = {}  # stream -> method -> seed
        self.order = order
        for record in sorted(records, key=lambda record: PARTS.index(record["part"])):
            if (record["split"], record["order"]) == (split, order):
                own = self.by.setdefault(record["data"], {})
                own.setdefault(record["method"], {})[record["seed"]] = record

    def summary(self, data: str, method: str, key: str = "accuracy") -> Summary | None:
        return summarise(r[key] for r in self.by[data].get(method, {}).values())

    def mean(self, data: str, method: str) -> float:
        found = self.summary(data, method)
        return found.mean if found else -1.0

    def best_rival(self, data: str) -> str:
        """The online rival of the highest mean accuracy; nothing where none was run."""
        known = [method for method in self.by[data] if method not in TITLES]
        return max(known, key=lambda method: self.mean(data, method), default="")

    def ahead(self, data: str, method: str) -> tuple[float, float, float] | None:
        """Accuracy of ours less that of a method: mean over seeds, and its 95 % interval."""
        ours, theirs = (self.by[data].get(name, {}) for name in (OURS, method))
        pairs = [(r["accuracy"], theirs[s]["accuracy"]) for s, r in ours.items() if s in theirs]
        if len(pairs) < MIN_SEEDS or method == OURS:
            return None
        return paired_difference(*zip(*pairs, strict=True))

    def findings(self) -> Iterator[str]:
        """How ours stands, in sentences."""
        whole = {d: rival for d in self.by if OURS in self.by[d] and (rival := self.best_rival(d))}
        if not whole:
            return
        words = ORDERS[self.order].capitalize()
        gaps = {d: self.ahead(d, rival) for d, rival in whole.items()}
        below = [f"{d} ({g[0]:+.2f} against {whole[d]}, {g[1]:+.2f} to {g[2]:+.2f})"
                 for d, g in gaps.items() if g and g[0] < -FAR and g[2] < 0]  # fmt: skip
        where = f"on {', '.join(below)}" if below else "on no stream"
        known = sum(gap is not None for gap in gaps.values())
        yield (
            f"{words}, `Classifier()` is {where} settled below the best online rival by more than "
            f"a point ({known} of {len(gaps)} streams have the {MIN_SEEDS} seeds that it takes)."
        )
        rivals = sorted({m for d in whole for m in self.by[d]} - {*TITLES})
        means = {m: self._average(whole, m) for m in (OURS, *rivals)}
        best = max(rivals, key=lambda m: means[m])
        yield (
            f"{words}, on average over {len(whole)} streams: "
            f"`Classifier()` {means[OURS]:.2f}, the best rival ({best}) {means[best]:.2f}."
        )
        for title, worst in (
            ("calibration error", {d: self.summary(d, OURS, "calibration_error") for d in whole}),
            ("distance of its score_ from the accuracy", {d: self.off(d, OURS) for d in whole}),
        ):
            if told := [(found.mean, data) for data, found in worst.items() if found]:
                yield "{}, largest {}: {:.2f} ({}).".format(words, title, *max(told))

    def off(self, data: str, method: str) -> Summary | None:
        """How far what a classifier says of itself is from its accuracy."""
        records = self.by[data].get(method, {}).values()
        return summarise(abs(r["score"] - r["accuracy"]) for r in records if r["score"] is not None)

    def _average(self, streams: Mapping[str, str], method: str) -> float:
        """Over the streams; a method that was not run on each of them has none."""
        known = [self.mean(data, method) for data in streams]
        return fmean(known) if min(known) >= 0 else -1.0

    def table(self) -> Table:
        """A row a stream and a column a method, on the features that suit it best there."""
        names = list(dict.fromkeys(_plain(m) for own in self.by.values() for m in own))
        names.sort(key=lambda name: (name == OFFLINE, name != OURS))
        rows: list[list[Cell]] = []
        for data, own in self.by.items():
            first = next(iter(next(iter(own.values())).values()))
            best = {n: max((self.mean(data, m) for m in own if _plain(m) == n), default=-1.0)
                    for n in names}  # fmt: skip
            top = max((value for name, value in best.items() if name != OFFLINE), default=0.0)
            cells = [NOTHING if v < 0 else Strong(f"{v:.1f}") if v == top else f"{v:.1f}"
                     for v in best.values()]  # fmt: skip
            rows.append([data, first["part"], first["learned"], first["memory"], *cells])
        heads = (TITLES.get(name, name) for name in names)
        return Table(("stream", "part", "samples", "memory", *heads), rows, ("stream", "part"))

    def details(self, data: str) -> Table:
        """Everything of one stream, best first."""
        rows: list[list[Cell]] = []
        for method in sorted(self.by[data], key=lambda m: -self.mean(data, m)):
            records = self.by[data][method]
            gap = self.ahead(data, method)
            costs = (summarise(r["bytes_held"] * 1e-6 for r in records.values()),
                     self.summary(data, method, "seconds"))  # fmt: skip
            rows.append([
                TITLES.get(method, method),
                measured(self.summary(data, method)),
                f"{gap[0]:+.2f} ({gap[1]:+.2f} to {gap[2]:+.2f})" if gap else NOTHING,
                measured(self.summary(data, method, "calibration_error")),
                measured(self.off(data, method)),
                *map(rounded, costs),
                text.number_ranges(sorted(records)),
            ])  # fmt: skip
        columns = ("method", "accuracy", "Classifier() less it", "calibration error",
                   "score_ off by", "MB held", "seconds", "seeds")  # fmt: skip
        return Table(columns, rows)


def page(root: Path, records: Sequence[Record]) -> str:
    """own-streams/RESULTS.md: words, findings, the tables of all streams, then each stream."""
    title, body = introduction(root / FOLDER / "README.md")
    parts = [f"# {title or TITLE}\n", body, ABOUT]
    for split, name in (("test", "Test parts"), ("validation", "Held-out parts of training data")):
        orders = [found for order in ORDERS if (found := Trials(records, split, order)).by]
        parts += [f"## {name}\n"] * bool(orders) + [*map(overview, orders)]
        more = " --set validate=true" * (split == "validation")
        for data in dict.fromkeys(data for found in orders for data in found.by):
            parts += [f"### {text.markdown(data)}\n"]
            for found in orders:
                if data in found.by:
                    parts += [f"{ORDERS[found.order].capitalize()}:\n"]
                    parts += [to_markdown(found.details(data))]
            parts += [f"```sh\nocil study {FOLDER} --set data={text.command(data)}{more}\n```\n"]
    return "\n".join(filter(None, parts))


def section(records: Sequence[Record]) -> str:
    """What RESULTS.md of all studies says of this one."""
    said = [s for order in ORDERS for s in Trials(records, "test", order).findings()]
    link = f"Numbers of every stream: [{FOLDER}]({FOLDER}/{NAME})."
    return "\n".join(
        ["## Your own stream\n", *(f"- {sentence}" for sentence in said), f"\n{link}\n"]
    )


def overview(found: Trials) -> str:
    """Findings and the table of all streams, for people in a hurry."""
    said = "".join(f"- {sentence}\n" for sentence in found.findings())
    return f"{said}\n{to_markdown(found.table())}"


def for_readme(root: str, records: Sequence[Record]) -> str:
    """The table of streams that come class by class; nothing while there is no record."""
    found = Trials(records, "test", "classes")
    seeds = max((len(own) for data in found.by.values() for own in data.values()), default=0)
    told = f"""\
`Classifier()` as it is and what one would use instead, on streams that come class by class:
accuracy in percent, up to {seeds} seeds, each method on the features that suit it best, the best
online one in bold (`ocil study {FOLDER}`, [every number]({root}/{FOLDER}/{NAME})).
"""
    return f"{told}\n{overview(found)}" if found.by else ""


def _plain(method: str) -> str:
    """slda-raw and slda-fixed are slda."""
    return method.removesuffix("-raw").removesuffix("-fixed")
