"""One verdict for a claim from all comparisons that were made for it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence

from ocil import text
from ocil.paper.claims import Claim
from ocil.paper.evidence import Finding

WORDS = ("confirmed", "refuted", "not settled")


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
