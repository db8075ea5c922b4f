"""Intervals and paired differences, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ocil.report import compare
from ocil.report.groups import Group, group
from ocil.report.runs import Run

Make = Callable[..., dict[str, Any]]
T2 = 4.302652729911275  # t_{0.975, 2}, from a printed table


def grouped(records: Iterable[dict[str, Any]]) -> list[Group]:
    return group(map(Run, records))


def test_an_interval_needs_three_runs(make_record: Make) -> None:
    [two] = grouped([make_record(seed=s, shift=s) for s in (0, 1)])
    assert compare.interval(two, "accuracy") is None
    [three] = grouped([make_record(seed=s, shift=s) for s in (0, 1, 2)])
    half = T2 / 3**0.5  # accuracies 85, 86, 87: deviation 1
    low, high = compare.interval(three, "accuracy") or (0, 0)
    assert (low, high) == (pytest.approx(86 - half), pytest.approx(86 + half))


def test_differences_are_paired_by_seed(make_record: Make) -> None:
    records = [make_record("er", seed=s, shift=-s) for s in (0, 1, 2, 3)]
    better = ((1, 1), (2, 2), (3, 3), (9, 0))
    records += [make_record("otc", seed=s, shift=d - s) for s, d in better]
    er, otc = grouped(records)
    found = compare.difference(otc, er)
    assert found.seeds == (1, 2, 3)
    assert found.mean == pytest.approx(2.0)  # 1, 2, 3
    assert found.low == pytest.approx(2 - T2 / 3**0.5)
    assert not found.clear
    assert compare.difference(er, otc).mean == pytest.approx(-2.0)


def test_pairs_need_the_same_tasks_data_and_memory(make_record: Make) -> None:
    er = [make_record("er", seed=s) for s in (0, 1, 2)]
    others = [make_record("otc", seed=s, shift=5) for s in (0, 1)]
    others.append(make_record("otc", seed=2, tasks=[[0, 1], [2, 3], [4, 5]]))
    a, b = grouped(er + others)
    assert compare.difference(a, b).seeds == (0, 1)
    assert compare.difference(a, b).mean is None
    elsewhere = [make_record("otc", seed=s, data_fingerprint="00" * 32) for s in (0, 1, 2)]
    assert compare.difference(*grouped(er + elsewhere)).seeds == ()
    larger = [make_record("otc", seed=s, memory=1500) for s in (0, 1, 2)]
    assert compare.differences(grouped(er + larger)) == []


def test_the_table_says_what_is_clear_and_what_cannot_be_said(make_record: Make) -> None:
    records = [make_record("er", seed=s) for s in (0, 1, 2)]
    records += [make_record("otc", seed=s, shift=4) for s in (0, 1, 2)]
    records += [make_record("scr", seed=0)]
    groups = grouped(records)
    found = compare.differences(groups)
    table = compare.differences_table(found, {id(g): g.method for g in groups})
    assert table.rows[0] == ["er", "otc", "500", "-4.00", "-4.00 to -4.00", "0-2"]
    assert [type(row[3]).__name__ for row in table.rows] == ["Strong", "str", "str"]
    assert table.rows[1][3:] == ["–", "fewer than 3 common seeds", "0"]


def test_the_leading_groups_have_the_best_of_every_method(make_record: Make) -> None:
    records = [make_record("er", shift=s, settings={"updates": s}) for s in range(1, 6)]
    records += [make_record("poor", shift=-30), make_record("poor", shift=-40, memory=7)]
    groups = grouped(records)
    kept = compare.leading(groups, most=3)
    shown = [(g.method, g.summary("accuracy").mean) for g in kept]  # type: ignore[union-attr]
    assert shown == [("er", 89.0), ("er", 90.0), ("poor", 55.0)]
    assert compare.leading(groups, most=99) == groups
