"""Claims judged from made-up records: the pairs, the interval, the verdict."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ocil.learners import registry
from ocil.paper.benches import bench_findings, read_benches
from ocil.paper.claims import Claim, Comparison, claim, claims, own_tables
from ocil.paper.claimtable import comparisons, found_for, overall, overview
from ocil.paper.evidence import INSIDE, Finding, findings, measure
from ocil.report.render import to_markdown
from ocil.report.runs import METRICS, Run
from ocil.settings import fields_of

Make = Callable[..., dict[str, Any]]
FOUR_OVER_ONE = {"left": {"components": 4}, "right": {"components": 1}}


def judged(runs: Sequence[Run], **compare: Any) -> list[Finding]:
    return list(findings(Comparison(**compare), runs))


def section(runs: Sequence[Run]) -> str:
    found = found_for(runs, read_benches(Path("nowhere")))
    return "".join([to_markdown(overview(found)), *comparisons(found)])


def as_runs(*records: dict[str, Any], study: str = "ladder-mnist") -> list[Run]:
    return [Run(record, name=f"{study}/{i}") for i, record in enumerate(records)]


@pytest.fixture
def pairs(make_run: Make) -> Callable[..., list[Run]]:
    """OTC with four and with one component; the leads of four, a seed each."""

    def make(*leads: float, study: str = "ladder-mnist", **changes: Any) -> list[Run]:
        more = changes.pop("settings", {})
        return as_runs(
            *(
                make_run(accuracy=a, seed=s, settings=more | {"components": k}, **changes)
                for s, lead in enumerate(leads)
                for k, a in ((1, 80.0), (4, 80.0 + lead))
            ),
            study=study,
        )

    return make


# ------------------------------------------------------------------ the shipped file


def test_every_claim_can_be_read_and_fits_a_cell() -> None:
    assert len(claims()) == len({c.text for c in claims()}) >= 35
    for each in claims():
        assert each.text.endswith(".") and len(each.text) <= 200 and len(each.place) <= 200
        assert each.place.startswith(("Section", "Figure", "abstract"))


def test_comparisons_ask_for_what_exists() -> None:
    from ocil.learners.otc import OtcSettings

    settings = {*fields_of(OtcSettings), "method"}
    measures = {*METRICS, *INSIDE, "curve"}
    every = [comparison for each in claims() for comparison in each.compare]
    for c in (c for c in every if c.source == "runs"):
        sides = [*c.lefts(), *c.rights()]
        assert {key for side in (*sides, c.where) for key in side} <= settings | {"metric"}
        assert set(c.free) <= settings
        assert {side.get("metric", c.metric) for side in sides} <= measures
        assert {side["method"] for side in sides if "method" in side} <= set(registry.names())
    assert {c.better for c in every} == {"higher", "lower"}
    assert {c.scale for c in every} == {"plain", "log"}
    assert {c.source for c in every} == {"runs", "mixture", "costs", "growth", "modality"}
    assert {c.studies for c in every} == {"", "methods", "all"}


# ------------------------------------------------------------------ the rule


@pytest.mark.parametrize(
    ("leads", "better", "verdict"),
    [
        ((1.0, 1.2, 1.1), "higher", "confirmed"),
        ((1.0, 1.2, 1.1), "lower", "refuted"),
        ((-1.0, -1.2, -1.1), "higher", "refuted"),
        ((-1.0, -1.2, -1.1), "lower", "confirmed"),
        ((5.0, -1.0, 1.0), "higher", "not settled"),
        ((1.0, 1.0), "higher", "not settled"),  # two pairs are too few, however equal
        ((9.0,), "higher", "not settled"),
        ((0.0, 0.0, 0.0), "higher", "not settled"),
    ],
)
def test_the_interval_decides(
    pairs: Callable[..., list[Run]], leads: Sequence[float], better: Any, verdict: str
) -> None:
    (finding,) = judged(pairs(*leads), **FOUR_OVER_ONE, better=better)
    assert list(finding.differences) == pytest.approx(leads)
    assert finding.verdict == verdict
    assert len(finding.names) == 2 * len(leads)


def test_the_interval_is_that_of_student(pairs: Callable[..., list[Run]]) -> None:
    (finding,) = judged(pairs(1.0, 2.0, 3.0), **FOUR_OVER_ONE)
    half = 4.302652729911275 * 1.0 / math.sqrt(3)  # t_{0.975, 2}
    assert finding.interval == pytest.approx((2.0, 2.0 - half, 2.0 + half))


def test_words_for_all_comparisons_together(pairs: Callable[..., list[Run]]) -> None:
    asked = claim({"text": "t", "place": "p", "compare": [FOUR_OVER_ONE]})

    def said(*runs: Run) -> str:
        return overall(asked, judged(runs, **FOUR_OVER_ONE))

    good, bad = pairs(1.0, 1.2, 1.1), pairs(-1.0, -1.2, -1.1, memory=1500)
    open_one = pairs(1.0, -1.2, 1.1, memory=200)
    assert said() == "untested"
    assert said(*good) == "confirmed"
    assert said(*good, *pairs(1.0, 1.2, 1.1, memory=1500)) == "confirmed (2 of 2)"
    assert said(*bad) == "refuted"
    assert said(*open_one) == "not settled (3 seeds)"
    assert said(*pairs(3.0)) == "not settled (1 seed)"
    assert said(*good, *bad, *open_one) == "mixed: 1 confirmed, 1 refuted, 1 not settled"


# ------------------------------------------------------------------ which runs are paired


def test_only_seeds_that_both_have(make_run: Make) -> None:
    runs = as_runs(
        *(make_run(seed=s, settings={"components": 4}) for s in (0, 1, 2)),
        *(make_run(seed=s, accuracy=80.0, settings={"components": 1}) for s in (1, 2, 3)),
    )
    (finding,) = judged(runs, **FOUR_OVER_ONE)
    assert list(finding.differences) == [10.0, 10.0]


@pytest.mark.parametrize(
    "change",
    [
        {"lr": 0.5},
        {"limit_per_class": 500},
        {"memory": 200},
        {"validate": True},
        {"choice": "random"},
    ],
)
def test_all_else_is_equal(make_run: Make, change: dict[str, Any]) -> None:
    one = make_run(settings={"components": 1})
    four = make_run(settings={"components": 4} | change, memory=change.get("memory", 500))
    assert judged(as_runs(one, four), **FOUR_OVER_ONE) == []
    assert len(judged(as_runs(one, four), **FOUR_OVER_ONE, free=list(change))) == 1
    same = make_run(settings={"components": 4, "eval_every": 0, "threads": 2})
    assert len(judged(as_runs(one, same), **FOUR_OVER_ONE)) == 1


def test_validation_and_other_data_say_nothing(pairs: Callable[..., list[Run]]) -> None:
    assert judged(pairs(1.0), **FOUR_OVER_ONE)
    assert judged(pairs(1.0, split="validation"), **FOUR_OVER_ONE) == []
    assert judged(pairs(1.0, data="digits"), **FOUR_OVER_ONE) == []
    assert judged(pairs(1.0, settings={"order": "joint"}), **FOUR_OVER_ONE) == []


def test_each_setting_is_a_finding_of_its_own(pairs: Callable[..., list[Run]]) -> None:
    runs = pairs(1.0) + pairs(2.0, memory=1500) + pairs(3.0, settings={"choice": "random"})
    assert sorted(f.differences[0] for f in judged(runs, **FOUR_OVER_ONE)) == [1.0, 2.0, 3.0]
    only = judged(runs, **FOUR_OVER_ONE, where={"memory": [200, 1500]})
    assert [f.differences for f in only] == [[2.0]]


def test_filters_above_lists_and_missing_settings(make_run: Make) -> None:
    runs = as_runs(
        make_run(accuracy=91.0, settings={"preserve": 0.5}),
        make_run(accuracy=90.0, settings={"preserve": 0.0}),
        make_run(accuracy=10.0),
    )
    with_it = {"left": {"preserve": {"above": 0}}, "right": {"preserve": 0}}
    assert [f.differences for f in judged(runs, **with_it)] == [[1.0]]


def test_two_readouts_of_the_same_runs(make_run: Make) -> None:
    runs = as_runs(
        *(make_run(seed=s, accuracy=90.0, others={"mahalanobis-1": 88.0}) for s in range(3))
    )
    sides = {"left": {"readout": "head"}, "right": {"readout": "mahalanobis-1"}}
    (finding,) = judged(runs, **sides)
    assert list(finding.differences) == pytest.approx([2.0] * 3)
    assert judged(runs, left={"readout": "head"}, right={"readout": "none"}) == []


def test_forgetting_learning_and_the_curve(make_run: Make) -> None:
    runs = as_runs(
        make_run(accuracy=90.0, learned=95.0, settings={"components": 4}),
        make_run(accuracy=90.0, learned=100.0, settings={"components": 1}),
    )
    for metric, wanted in (("forgetting", -5.0), ("learning", -4.0)):
        (finding,) = judged(runs, **FOUR_OVER_ONE, metric=metric)
        assert finding.differences[0] == pytest.approx(wanted)
    (finding,) = judged(runs, **FOUR_OVER_ONE, metric="curve")  # one of t tasks is fresh, t < 5
    assert finding.differences[0] == pytest.approx(-5 * (1 + 1 / 2 + 1 / 3 + 1 / 4) / 5)


# ------------------------------------------------------------------ between methods


def test_a_method_meets_the_best_of_a_baseline(make_run: Make) -> None:
    records = [make_run("otc", 90.0, seed=s) for s in range(3)]
    for steps, accuracy in ((1, 85.0), (2, 88.0)):
        records += [make_run("er", accuracy, seed=s, settings={"updates": steps}) for s in range(3)]
    records.append(make_run("er", 89.9, settings={"updates": 3}))  # fewer seeds
    sides = {"left": {"method": "otc"}, "right": {"method": ["er", "gsa"]}}
    (finding,) = judged(as_runs(*records, study="table-mnist"), **sides)
    assert list(finding.differences) == pytest.approx([2.0] * 3)
    (finding,) = judged(as_runs(*records, study="er-x"), **sides, metric="curve", better="lower")
    assert list(finding.differences) == pytest.approx([5.0] * 3)
    assert judged(as_runs(*records, study="ladder-mnist"), **sides) == []
    assert judged(as_runs(*records, study="ladder-mnist"), **sides, studies="all")


@pytest.mark.parametrize(
    "change", [{"augment": "affine"}, {"limit_per_class": 9}, {"net": "resnet18"}, {"batch": 1}]
)
def test_methods_meet_under_one_protocol(make_run: Make, change: dict[str, Any]) -> None:
    sides = {"left": {"method": "otc"}, "right": {"method": "er"}}
    runs = as_runs(make_run("otc", 90.0), make_run("er", 80.0), study="table-mnist")
    assert len(judged(runs, **sides)) == 1
    runs = as_runs(make_run("otc"), make_run("er", settings=change), study="table-mnist")
    assert judged(runs, **sides) == []


def test_a_lead_across_memory_sizes(make_run: Make) -> None:
    leads = {200: (5.0, 5.2, 5.1), 1000: (1.0, 1.3, 1.1), 5000: (5.0, 5.1)}
    records = []
    for memory, each in leads.items():
        for seed, lead in enumerate(each):
            records.append(make_run("otc", 80.0 + lead, seed=seed, memory=memory))
            records.append(make_run("er", 80.0, seed=seed, memory=memory))
    sides = {"left": {"method": "otc"}, "right": {"method": "er"}}
    at_1000, at_5000 = judged(as_runs(*records, study="er-x"), **sides, across="memory")
    assert list(at_1000.differences) == pytest.approx([4.0, 3.9, 4.0])
    assert at_1000.verdict == "confirmed"
    assert at_1000.settings["memory"] == "200 against 1000"
    assert len(at_1000.names) == 12
    assert list(at_5000.differences) == pytest.approx([0.0, 0.1])


@pytest.mark.parametrize(
    ("rivals", "rank", "verdict"),
    [
        ({"er": 9.0, "gsa": 9.0, "mose": 1.0}, 2, "confirmed"),
        ({"er": 9.0, "gsa": 1.0, "mose": 1.0}, 2, "refuted"),
        ({"er": 9.0, "gsa": 1.0, "mose": 1.0}, 3, "confirmed"),
        ({"er": 9.0, "gsa": 9.0}, 2, "confirmed"),  # one was not run: at worst second
        ({"er": 9.0}, 2, "not settled (1 of 3 rivals run)"),
        ({"gsa": 1.0}, 1, "refuted"),
    ],
)
def test_a_rank_counts_who_is_better(
    make_run: Make, rivals: dict[str, float], rank: int, verdict: str
) -> None:
    """OTC forgets 5."""
    forgets = {"otc": 5.0} | rivals
    records = [
        make_run(method, 80.0, learned=80.0 + lost + 0.1 * seed * (method == "otc"), seed=seed)
        for method, lost in forgets.items()
        for seed in range(3)
    ]
    compare = {
        "left": {"method": "otc"},
        "right": {"method": ["er", "gsa", "mose"]},
        "metric": "forgetting",
        "better": "lower",
        "rank": rank,
    }
    asked = claim({"text": "t", "place": "p", "compare": [compare]})
    assert overall(asked, judged(as_runs(*records, study="er-x"), **compare)) == verdict
    more = [
        record | {"settings": record["settings"] | {"lr": 0.1}}
        for record in records
        if record["method"] == "otc"
    ]
    twice = overall(asked, judged(as_runs(*records, *more, study="er-x"), **compare))
    assert twice == (verdict if "not" in verdict else f"{verdict} (2 of 2)")


# ------------------------------------------------------------------ looks inside, streams


def test_the_gap_between_test_and_replayed_features(make_run: Make) -> None:
    looks = [
        {"own_class_distance": {
            "test": {"components": 2.0 * factor, "single": 9.0},
            "replayed": {"components": 0.5, "single": 1.5},
        }}
        for factor in (100, 1)
    ]  # fmt: skip
    record = make_run(inside=looks)
    found = [measure(Run(record), m, None) for m in ("test", "replayed", "gap", "gap-single")]
    assert found == [2, 0.5, 4, 6]
    sides = {"left": {"metric": "gap"}, "right": {"metric": "gap-single"}}
    (finding,) = judged(as_runs(record), **sides, scale="log", better="lower")
    assert finding.differences == pytest.approx([math.log(4 / 6)])


@pytest.mark.parametrize(
    "looks",
    [
        None, [], {}, "x", [None], [{"own_class_distance": []}], [{}],
        [{"own_class_distance": {"test": {"components": "1"}, "replayed": {"components": 1}}}],
        [{"own_class_distance": {"test": {"components": None}, "replayed": {"components": 1}}}],
        [{"own_class_distance": {"test": {"components": 1}, "replayed": {"components": 0}}}],
        [{"own_class_distance": {"test": {"components": True}, "replayed": {"components": 1}}}],
        [{"own_class_distance": {"test": {"components": 1e300}, "replayed": {"components": 1e-9}}}],
    ],
)  # fmt: skip
def test_an_odd_look_inside_is_unknown(make_run: Make, looks: Any) -> None:
    assert measure(Run(make_run(inside=looks)), "gap", None) is None
    assert measure(Run(make_run()), "gap", None) is None


def test_a_factor_beyond_all_numbers_is_shown(make_run: Make) -> None:
    looks = [
        [{"own_class_distance": {"test": {"components": x}, "replayed": {"components": 1.0}}}]
        for x in (1e300, 1e-300)
    ]
    records = [make_run(seed=s, inside=look) for s, look in enumerate(looks)]
    written = section(as_runs(*records, study="table-mnist"))
    assert "| × 1 | × 9.86e-305 to × 1.01e+304 | 2 seeds | not settled |" in written


def _streams(tmp_path: Path, **change: Any) -> Path:
    cells = [
        {"separation": 1.5, "dim": dim, "batch": 2, "angle": angle, "method": method,
         "scores": [[error + 0.01 * seed, 1.0] for seed in range(3)], "ms": ms} | change
        for dim in (16, 128)
        for angle in (0.0, 1.57)
        for method, error, ms in (("dual", 0.5, 8.0), ("em", 0.1 + (angle > 0), 2.0))
    ]  # fmt: skip
    (tmp_path / "mixture").mkdir()
    (tmp_path / "mixture" / "mixture.json").write_text(json.dumps({"cells": cells}))
    return tmp_path


def test_streams_are_paired_by_seed_and_times_by_kind(tmp_path: Path) -> None:
    cells = read_benches(_streams(tmp_path))
    sides = {"left": {"method": "dual"}, "right": {"method": "em"}, "source": "mixture"}

    def ask(**more: Any) -> Finding:
        (finding,) = bench_findings(Comparison(**sides, **more), cells)
        return finding

    drifting = ask(where={"angle": {"above": 0}}, metric="error", better="lower")
    assert drifting.differences == pytest.approx([-0.6] * 3)
    assert drifting.verdict == "confirmed"
    assert ask(where={"angle": 0}, metric="error").differences == pytest.approx([0.4] * 3)
    times = ask(metric="ms", scale="log", better="lower")
    assert times.differences == pytest.approx([math.log(4)] * 4)
    assert times.verdict == "refuted"


@pytest.mark.parametrize("change", [{"method": 1}, {"ms": "x"}, {"ms": 0}, {"scores": [[]]}])
def test_a_damaged_record_of_streams_is_left_out(
    tmp_path: Path, change: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read_benches(_streams(tmp_path, **change))["mixture"] == ()
    assert "mixture.json cannot be read" in caplog.text
    assert not any(read_benches(tmp_path / "mixture").values())


def _costs(tmp_path: Path, ms: list[Any]) -> Path:
    """EM takes 2, 4 and 8 ms at 8, 16 and 32 passes; one update by dual takes 4."""
    sizes = {"values": [1024, 2048], "kilobytes": [10.0, 20.0]}
    passes = {"values": [8, 16, 32], "ms": ms, "kilobytes": [30.0] * 3}
    costs = {
        "B": {"dual": sizes | {"ms": [4.0, 8.0]}, "batch EM": sizes | {"ms": [1.0, 4.0]}},
        "I_EM": {"batch EM": passes},
    }
    (tmp_path / "mixture").mkdir()
    (tmp_path / "mixture" / "em_versus_mmot.json").write_text(json.dumps({"costs": costs}))
    return tmp_path


def test_costs_are_paired_by_size_and_growth_is_held_against_linear(tmp_path: Path) -> None:
    benches = read_benches(_costs(tmp_path, [2.0, 4.0, 8.0]))
    sides = {"left": {"method": "dual"}, "right": {"method": "batch EM"}}

    def ask(source: str, **more: Any) -> list[float]:
        (finding,) = bench_findings(Comparison(**sides | more, source=source), benches)  # type: ignore[arg-type]
        return list(finding.differences)

    where = {"quantity": "I_EM"}
    assert ask("costs", where=where, metric="ms") == [2.0, 0.0, -4.0]
    assert ask("costs", where={"quantity": "B"}, metric="kilobytes") == [0.0, 0.0]
    linear = {"where": {"quantity": "B"}, "metric": "growth", "right": {"method": "linear"}}
    assert ask("growth", **linear) == pytest.approx([0.0])
    assert ask("growth", **linear, left={"method": "batch EM"}) == pytest.approx([1.0])


@pytest.mark.parametrize("ms", [[2.0, 4.0], [0.0, 4.0, 8.0], ["2", 4.0, 8.0], [None, 1.0, 1.0]])
def test_a_damaged_record_of_costs_is_left_out(
    tmp_path: Path, ms: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read_benches(_costs(tmp_path, ms))["costs"] == ()
    assert "em_versus_mmot.json cannot be read" in caplog.text


# ------------------------------------------------------------------ the paper's own tables


def _about(words: str) -> Claim:
    (found,) = [each for each in claims() if words in each.text]
    return found


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("higher accuracy than every baseline", "holds in 87 of 87"),
        ("largest at the smallest memory", "holds in 5 of 7; not: cifar100 2000, cifar100 5000"),
        ("among the two methods", "holds in 5 of 6; not: cifar100 5000"),
        ("among the three methods", "holds in 2 of 3; not: tiny-imagenet 10000"),
        ("consistently beats one chosen at random", "holds in 6 of 6"),
        ("four centroids a class are best", "holds in 5 of 5"),
        ("With several passes", "holds in 18 of 18"),
        (
            "forgets less than the two baselines",
            "holds in 4 of 6; not: tiny-imagenet 5000 (19.8 against 19.7 of ocm), "
            "tiny-imagenet 10000 (16.5 against 15.5 of mose)",
        ),
        ("Dynamic Preservation raises", ""),
        ("An update by MMOT takes less time", ""),
    ],
)
def test_what_the_papers_own_tables_say(words: str, said: str) -> None:
    assert own_tables(_about(words)) == said


# ------------------------------------------------------------------ the section


def test_the_section_shows_verdicts_numbers_and_studies(pairs: Callable[..., list[Run]]) -> None:
    written = section(pairs(1.0, 1.2, 1.1))
    assert "| 1 | Several adaptive centroids a class give a higher accuracy than one. |" in written
    assert "**confirmed**" in written
    assert written.count("**untested**") == len(claims()) - 1
    assert (
        "| 1 | mnist, memory 500 | accuracy of components 4 against components 1 | +1.10 | "
        "+0.85 to +1.35 | 3 seeds | confirmed | ladder-mnist (6) |" in written
    )
    assert "comparisons behind" not in section([])


def test_hostile_settings_show_as_text(pairs: Callable[..., list[Run]]) -> None:
    bad = "<b>|`x`\n# Owned"
    runs = pairs(1.0, settings={"choice": bad, bad: bad}, study=bad) + pairs(2.0)
    written = section(runs)
    assert "&lt;b&gt;\\|\\`x\\`" in written
    assert "<b>" not in written
    assert "\n# Owned" not in written
