"""The table of claims: what the records and the paper's own tables say of each, as Markdown."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ocil import text
from ocil.report.claims import Claim, Filter, claims
from ocil.report.consistency import own_tables
from ocil.report.evidence import LEAST, Finding, findings
from ocil.report.render import NOTHING, Cell, Strong, Table, to_markdown
from ocil.report.runs import Run
from ocil.report.streams import Cells, stream_findings
from ocil.report.verdicts import overall, pairs_of, setting_of

INTRODUCTION = f"""\
## The paper's claims

What the paper says in words, judged by a rule from the records: the difference of runs with the
same seed, all else equal (between methods: data, memory, length and augmentation, each method with
its own settings, a baseline with the best that was run), with its 95 % interval. An interval that
excludes zero confirms or refutes; otherwise, or with fewer than {LEAST} pairs, nothing is settled.
The intervals are not corrected for the number of comparisons. The last column asks whether the
means that the paper itself prints bear the claim out.
"""
LEFT = ("claim", "in the paper", "verdict", "the paper's own tables", "setting", "compared",
        "studies")  # fmt: skip
Found = tuple[Claim, list[Finding]]


def claims_section(runs: Sequence[Run], streams: Cells) -> Iterator[str]:
    """The claims with their verdicts, then the comparisons behind them."""
    found = [(claim, list(_evidence(claim, runs, streams))) for claim in claims()]
    yield INTRODUCTION
    yield to_markdown(_overview(found))
    if any(evidence for _, evidence in found):
        yield "### The comparisons behind the verdicts\n"
        yield _DETAIL
        yield to_markdown(_details(found))


_DETAIL = """\
Left minus right in points of percent, or left over right where a factor is given; numbers refer to
the claims above. Test and replayed: own-class Mahalanobis distance of test images and of images in
the memory at the end of the stream; gap: the first over the second; gap-single: the same with each
class's components merged into one Gaussian. Streams: `bench/mixture.py`, error of the means in
units of the component's deviation, milliseconds of an update.
"""


def _evidence(claim: Claim, runs: Sequence[Run], streams: Cells) -> Iterator[Finding]:
    for comparison in claim.compare:
        if comparison.source == "mixture":
            yield from stream_findings(comparison, streams)
        else:
            yield from findings(comparison, runs)


def _overview(found: Sequence[Found]) -> Table:
    rows: list[list[Cell]] = []
    for number, (claim, evidence) in enumerate(found, 1):
        rows.append(
            [
                number,
                claim.text,
                claim.place,
                Strong(overall(claim, evidence)),
                own_tables(claim) or NOTHING,
            ]
        )
    columns = ("number", "claim", "in the paper", "verdict", "the paper's own tables")
    return Table(columns, rows, LEFT)


def _details(found: Sequence[Found]) -> Table:
    columns = ("number", "setting", "compared", "difference", "95 % interval", "pairs", "verdict",
               "studies")  # fmt: skip
    rows: list[list[Cell]] = []
    for number, (_, evidence) in enumerate(found, 1):
        apart = _told_apart(evidence)
        for finding in evidence:
            mean, low, high = finding.interval
            limits = f"{_number(finding, low)} to {_number(finding, high)}"
            rows.append(
                [
                    number,
                    setting_of(finding, apart),
                    _compared(finding),
                    _number(finding, mean),
                    NOTHING if math.isinf(low) else limits,
                    pairs_of(finding),
                    finding.verdict,
                    _studies(finding),
                ]
            )
    return Table(columns, rows, LEFT)


def _told_apart(evidence: Sequence[Finding]) -> set[str]:
    """Settings that tell findings apart which say the same of themselves without them."""
    alike: dict[str, list[Finding]] = defaultdict(list)
    for finding in evidence:
        alike[f"{setting_of(finding)}: {_compared(finding)}"].append(finding)
    aside = {"seed", "method", "fingerprint", "preset"}
    return {
        key
        for members in alike.values()
        for key in members[0].settings
        if key not in members[0].comparison.varied | aside
        and len({json.dumps(f.settings.get(key), sort_keys=True) for f in members}) > 1
    }


def _compared(finding: Finding) -> str:
    comparison = finding.comparison
    sides = comparison.called or [_side(side) for side in (finding.left, finding.right)]
    metric = "" if "metric" in finding.left else f"{comparison.metric} of "
    lead = "lead in " if comparison.across else ""
    note = f" ({comparison.note})" if comparison.note else ""
    return f"{lead}{metric}{sides[0]} against {sides[1]}{note}"


def _side(side: Filter) -> str:
    return ", ".join(f"{_value(v)}" if k in BARE else f"{k} {_value(v)}" for k, v in side.items())


BARE = ("method", "metric", "readout")
LARGEST = 700.0  # logarithm of a factor; beyond it a float overflows


def _value(value: Any) -> str:
    return f"above {value['above']}" if isinstance(value, Mapping) else text.setting(value)


def _number(finding: Finding, value: float) -> str:
    if finding.comparison.scale == "plain":
        return f"{value:+.2f}"
    return f"× {math.exp(max(-LARGEST, min(value, LARGEST))):.3g}"


def _studies(finding: Finding) -> str:
    counts = Counter(name.split("/")[0] for name in sorted(finding.names))
    return ", ".join(f"{text.plain(name, 60)} ({n})" for name, n in sorted(counts.items()))
