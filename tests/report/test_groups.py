"""Grouping by everything but the seed, and the labels that tell groups apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ocil.report.groups import Group, Summary, group, labels, readouts
from ocil.report.runs import Run

Make = Callable[..., dict[str, Any]]


def test_runs_that_differ_by_seed_are_one_group(make_record: Make) -> None:
    records = [make_record(seed=seed) for seed in (2, 0, 1)]
    [found] = grouped(records)
    assert found.seeds == (0, 1, 2)


def grouped(records: Iterable[dict[str, Any]]) -> list[Group]:
    return group(map(Run, records))


@pytest.mark.parametrize(
    "change",
    [
        {"memory": 1500},
        {"split": "validation"},
        {"data": "digits"},
        {"settings": {"updates": 2}},
        {"settings": {"own": 1}},
        {"epochs": 2},
        {"readout": "head"},
        {"data_fingerprint": "00" * 32},
        {"tasks": [[0, 1], [2, 3], [4], [5]]},
    ],
)
def test_whatever_else_differs_makes_another_group(make_record: Make, change: Any) -> None:
    assert len(grouped([make_record(), make_record(seed=1, **change)])) == 2
    assert len(grouped([make_record(), make_record("joint", seed=1)])) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"threads": 2, "device": "cuda", "checkpoint_every": 7}},
        {"preset": "other", "settings": {"preset": "other"}},
        {"settings": {"eval_every": 0}},  # how often it was looked at
        {"settings": {"classes_per_task": 2}},  # today's default; the other record is older
    ],
)
def test_what_does_not_change_the_question_does_not_split(make_record: Make, change: Any) -> None:
    assert len(grouped([make_record(), make_record(seed=1, **change)])) == 1


def test_a_seed_that_is_there_twice_counts_once(make_record: Make) -> None:
    first, again = make_record(), make_record(shift=1)
    [found] = grouped([first, again])
    assert [run.record for run in found.runs] == [first]


def test_numbers_are_derived_from_the_evaluations(make_record: Make) -> None:
    # head: A_T = (70 + 80 + 90) / 3, forgotten (20 + 10) / 2, learned at 90;
    # stored averages are not believed
    [found] = grouped([make_record(final_average_accuracy=1.0, average_forgetting=2.0)])
    assert found.summary("accuracy", "head") == Summary(80.0, None, 1)
    assert found.summary("accuracy") == Summary(85.0, None, 1)
    assert found.summary("forgetting", "head") == Summary(15.0, None, 1)
    assert found.summary("learning", "head") == Summary(90.0, None, 1)
    assert found.summary("backward", "head") == Summary(-15.0, None, 1)
    # probes, two per task: 90, (80 + 90) / 2, (70 + 80 + 90) / 3: mean 85
    assert found.summary("anytime", "head") == Summary(85.0, None, 1)
    # worst after its end: 70, 80; last task 90: (70 + 80 + 90) / 3
    assert found.summary("worst", "head") == Summary(80.0, None, 1)


def test_mean_and_deviation_over_seeds(make_record: Make) -> None:
    [found] = grouped([make_record(seed=s, shift=s) for s in (0, 1, 2)])
    summary = found.summary("accuracy", "head")
    assert summary == Summary(pytest.approx(81.0), pytest.approx(1.0), 3)  # type: ignore[arg-type]
    assert str(summary) == "81.00 ± 1.00"


def test_joint_has_no_forgetting(make_record: Make) -> None:
    [found] = grouped([make_record("joint", joint=True)])
    assert found.summary("accuracy", "head") == Summary(80.0, None, 1)
    for metric in ("forgetting", "learning", "backward", "worst"):
        assert found.summary(metric) is None


def test_a_readout_without_evaluations_has_no_numbers(make_record: Make) -> None:
    [found] = grouped([make_record(evaluations=[])])
    assert found.summary("accuracy") is None


def test_another_preset_is_told_by_its_name(make_record: Make) -> None:
    settings = [
        {"preset": "default", "lr": 0.1},
        {"preset": "paper", "lr": 0.2},
        {"preset": "paper", "lr": 0.3},
    ]
    groups = group(Run(make_record(seed=0, settings=each)) for each in settings)
    assert sorted(labels(groups)) == ["", "preset paper, lr=0.2", "preset paper, lr=0.3"]


def test_one_setting_at_a_time_is_one_setting_a_row(make_record: Make) -> None:
    base = {"lr": 0.1, "tau": 1, "eps": 1, "updates": 1, "floor": 1}
    changes = [{}, {"lr": 0.2}, {"tau": 2}, {"eps": 2}, {"updates": 2}, {"floor": 2}]
    groups = grouped([make_record(settings=base | change) for change in changes])
    assert sorted(labels(groups)) == ["", "eps=2", "floor=2", "lr=0.2", "tau=2", "updates=2"]


def test_labels_name_only_what_differs(make_record: Make) -> None:
    groups = grouped(
        [
            make_record(settings={"updates": s, "lr": 0.1, "augment": a})
            for s in (1, 2)
            for a in "ab"
        ]
    )
    assert sorted(labels(groups)) == [
        "augment=a, updates=1",
        "augment=a, updates=2",
        "augment=b, updates=1",
        "augment=b, updates=2",
    ]
    assert labels(groups[:1]) == [""]


def test_what_belongs_to_one_method_is_shown_in_its_row_only(make_record: Make) -> None:
    joint = make_record("joint", settings={"order": "joint"})
    others = [make_record(name) for name in ("er", "scr", "finetune")]
    groups = grouped([joint, *others])
    shown = {g.method: label for g, label in zip(groups, labels(groups), strict=True)}
    assert shown == {"joint": "order=joint", "er": "", "scr": "", "finetune": ""}


def test_settings_are_compared_within_a_data_set(make_record: Make) -> None:
    groups = grouped([make_record(), make_record(data="digits", settings={"updates": 9})])
    assert labels(groups) == ["", ""]


def test_the_order_is_fixed(make_record: Make) -> None:
    records = [
        make_record("er", memory=1500),
        make_record("finetune", memory=None),
        make_record("joint", memory=500),
        make_record("er", memory=500),
        make_record("er", data="digits"),
    ]
    shown = [(g.data, g.memory, g.method) for g in grouped(records)]
    assert shown == [(g.data, g.memory, g.method) for g in grouped(records[::-1])]
    assert shown == [
        ("digits", 500, "er"),
        ("mnist", 500, "er"),
        ("mnist", 500, "joint"),
        ("mnist", 1500, "er"),
        ("mnist", None, "finetune"),
    ]


def test_readouts_keep_their_order(make_record: Make) -> None:
    assert readouts(grouped([make_record(), make_record("scr", readouts=["ema-head", "ncm"])])) == [
        "head",
        "ema-head",
        "ncm",
    ]
