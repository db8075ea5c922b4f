"""The table of claims: what the records and the paper's own tables say of each, as Markdown."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ocil import text
from ocil.paper.benches import Benches, bench_findings
from ocil.paper.claims import Claim, Filter, claims, own_tables
from ocil.paper.evidence import MIN_PAIRS, Finding, findings
from ocil.paper.modality import modality_findings
from ocil.report.render import NOTHING, Cell, Strong, Table, to_markdown
from ocil.report.runs import Run

INTRODUCTION = f"""\
## The paper's claims

What the paper says in words, judged by a rule from the records: the difference of runs with the
same seed, all else equal (between methods: data, memory, length and augmentation, each method with
its own settings, a baseline with the best that was run), with its 95 % interval. An interval that
excludes zero confirms or refutes; otherwise, or with fewer than {MIN_PAIRS} pairs, nothing is
settled. The intervals are not corrected for the number of comparisons. The last column asks
whether the means that the paper itself prints bear the claim out.
"""
LEFT = ("claim", "in the paper", "verdict", "the paper's own tables", "setting", "compared",
        "studies")  # fmt: skip
WORDS = ("confirmed", "refuted", "not settled")
BARE = ("method", "metric", "readout")
MAX_EXPONENT = 700.0  # logarithm of a factor; beyond it a float overflows
Found = tuple[Claim, list[Finding]]


def found_for(runs: Sequence[Run], benches: Benches) -> list[Found]:
    """Every claim with what was found on it."""
    return [(claim, list(_evidence(claim, runs, benches))) for claim in claims()]


def comparisons(found: Sequence[Found]) -> Iterator[str]:
    """The comparisons behind the verdicts."""
    if any(evidence for _, evidence in found):
        yield "### The comparisons behind the verdicts\n"
        yield _DETAIL
        yield to_markdown(_details(found))


_DETAIL = """\
Left minus right in points of percent, or left over right where a factor is given; numbers refer to
the claims above. Test and replayed: own-class Mahalanobis distance of test images and of images in
the memory at the end of the stream; gap: the first over the second; gap-single: the same with each
class's components merged into one Gaussian. Streams: `bench/mixture.py`, error of the means in
units of the component's deviation, milliseconds of an update. One update at several sizes:
`bench/em_versus_mmot.py`. Gaussians against one Student t: `ocil figure modality`.
"""


def _evidence(claim: Claim, runs: Sequence[Run], benches: Benches) -> Iterator[Finding]:
    for comparison in claim.compare:
        if comparison.source == "runs":
            yield from findings(comparison, runs)
        elif comparison.source == "modality":
            yield from modality_findings(comparison, runs)
        else:
            yield from bench_findings(comparison, benches)


def overview(found: Sequence[Found], short: bool = False) -> Table:
    """The claims with their verdicts; `short` leaves out where the paper makes them."""
    rows: list[list[Cell]] = []
    for number, (claim, evidence) in enumerate(found, 1):
        place = [] if short else [claim.place]
        verdict = Strong(overall(claim, evidence))
        rows.append([number, claim.text, *place, verdict, own_tables(claim) or NOTHING])
    where = () if short else ("in the paper",)
    return Table(("number", "claim", *where, "verdict", "the paper's own tables"), rows, LEFT)


def _details(found: Sequence[Found]) -> Table:
    columns = ("number", "setting", "compared", "difference", "95 % interval", "pairs", "verdict",
               "studies")  # fmt: skip
    rows: list[list[Cell]] = []
    for number, (_, evidence) in enumerate(found, 1):
        apart = _told_apart(evidence)
        for finding in evidence:
            mean, low, high = finding.interval
            limits = f"{_number(finding, low)} to {_number(finding, high)}"
            about = [number, setting_of(finding, apart), _compared(finding)]
            ends = NOTHING if math.isinf(low) else limits
            said = [_number(finding, mean), ends, pairs_of(finding), finding.verdict]
            rows.append([*about, *said, _studies(finding)])
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


def _value(value: Any) -> str:
    return f"above {value['above']}" if isinstance(value, Mapping) else text.setting(value)


def _number(finding: Finding, value: float) -> str:
    if finding.comparison.scale == "plain":
        return f"{value:+.2f}"
    return f"× {math.exp(max(-MAX_EXPONENT, min(value, MAX_EXPONENT))):.3g}"


def _studies(finding: Finding) -> str:
    counts = Counter(name.split("/")[0] for name in sorted(finding.names))
    return ", ".join(f"{text.plain(name, 60)} ({n})" for name, n in sorted(counts.items()))


def overall(claim: Claim, evidence: Sequence[Finding]) -> str:
    """One word where all comparisons agree, else how many say what."""
    if not evidence:
        return "untested"
    ranks = {comparison.rank for comparison in claim.compare} - {0}
    said = _ranked(evidence, *ranks) if ranks else [finding.verdict for finding in evidence]
    counts = Counter(said)
    if len(counts) > 1:
        parts = [f"{counts[word]} {word}" for word in WORDS if counts[word]]
        return f"mixed: {', '.join(parts)}"
    word = said[0]
    if word == "not settled" and ranks:
        rivals = claim.compare[0].rights()
        run = sum(any(f.right == rival for f in evidence) for rival in rivals)
        return f"not settled ({run} of {len(rivals)} rivals run)"
    if word == "not settled":
        return f"not settled ({pairs_of(max(evidence, key=lambda f: len(f.differences)))})"
    return word if len(said) == 1 else f"{word} ({len(said)} of {len(said)})"


def _ranked(evidence: Sequence[Finding], rank: int) -> list[str]:
    """In each setting: at most rank - 1 rivals may be better. One that was not run may be."""
    places: dict[str, list[Finding]] = defaultdict(list)
    for finding in evidence:
        mine = {k: v for k, v in finding.settings.items() if k != "seed"}
        places[json.dumps(mine, sort_keys=True)].append(finding)
    said = []
    for members in places.values():
        rivals = len(members[0].comparison.rights())
        counts = Counter(finding.verdict for finding in members)
        beaten = rivals - counts["confirmed"] < rank  # too few are left to push it further down
        lost = counts["refuted"] >= rank
        said.append("refuted" if lost else "confirmed" if beaten else "not settled")
    return said


def setting_of(finding: Finding, apart: set[str] | frozenset[str] = frozenset()) -> str:
    """Data, memory, length and preset of a finding, and the settings named in `apart`."""
    s = finding.settings
    parts = [text.plain(s["data"], 60)]
    parts += [f"memory {s['memory']}"] if s.get("memory") is not None else []
    parts += [f"{s['limit_per_class']} images a class"] if s.get("limit_per_class") else []
    if s.get("preset", "default") != "default" and "preset" not in finding.comparison.varied:
        parts.append(f"preset {text.plain(s['preset'], 40)}")
    parts += [f"{text.plain(k, 40)}={text.setting(s[k])}" for k in sorted(apart) if k in s]
    return ", ".join(parts)


def pairs_of(finding: Finding) -> str:
    n = len(finding.differences)
    return f"{n} {finding.unit}" if n > 1 else "1 seed"
