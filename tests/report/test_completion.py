"""Records from before a setting existed stand beside newer ones."""

from collections.abc import Callable
from typing import Any

from ocil.report.completion import completed
from ocil.report.groups import group, labels

Make = Callable[..., dict[str, Any]]


def aged(make_record: Make, method: str, seed: int, **settings: object) -> dict:
    record = make_record(method, seed=seed)
    return record | {"settings": record["settings"] | settings}


def test_an_older_record_joins_the_runs_that_have_the_default(make_record: Make) -> None:
    old = aged(make_record, "otc", 0, objective="em")
    same = aged(make_record, "otc", 1, objective="em", average="window")
    other = aged(make_record, "otc", 0, objective="em", average="stepwise")
    groups = group([old, same, other])
    assert sorted(g.seeds for g in groups) == [(0,), (0, 1)]
    assert set(labels(groups)) == {"average=stepwise", "average=window"}


def test_what_is_given_is_kept_and_nothing_is_made_up(make_record: Make) -> None:
    odd = aged(make_record, "from-elsewhere", 0, alpha=1)
    plain = aged(make_record, "from-elsewhere", 1)
    assert completed([odd, plain]) == [odd, plain]
    late = aged(make_record, "otc", 0, no_longer_a_setting=3)
    [kept, without] = completed([late, aged(make_record, "otc", 1, average="stepwise")])
    assert kept["settings"]["no_longer_a_setting"] == 3
    assert kept["settings"]["average"] == "window"
    assert "no_longer_a_setting" not in without["settings"]
    assert without["settings"]["average"] == "stepwise"
