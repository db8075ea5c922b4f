"""Expected times: from records scaled to the stream and the method, or from a few steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ocil import data
from ocil.learners import registry
from ocil.run.folder import Plan
from ocil.settings import to_mapping
from ocil.stream import Stream
from ocil.study import estimate
from ocil.study.estimate import batches, measure, project


def planned(method: str, **values: Any) -> Plan:
    """A plan with the data set's protocol and the method's preset, as a study makes it."""
    resolved, preset = registry.resolve(method, values)
    return Plan(method, registry.make_settings(method, resolved), preset)


def record(plan: Any, seconds: float) -> dict[str, Any]:
    settings = to_mapping(plan.settings)
    made = {"method": plan.method, "settings": settings, "seconds": seconds}
    return made | {"steps": batches(settings)}


@pytest.fixture
def no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(plan: Plan) -> float:
        raise AssertionError(f"{plan.method} on {plan.settings.data} is timed")

    monkeypatch.setattr(estimate, "measure", refuse)


def test_runs_of_one_kind_take_as_long_as_each_other(
    plan: Callable[..., Any], no_timing: None
) -> None:
    records = [record(plan(seed=s), t) for s, t in ((0, 10.0), (1, 30.0), (2, 14.0))]
    records.append(record(plan(updates=2), 50.0))
    times = project([plan(seed=9), plan(seed=8, memory=7), plan(seed=9, updates=2)], records)
    assert times == pytest.approx([14.0, 14.0, 50.0])


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({"limit_per_class": 500}, 500 / 5000),
        ({"epochs": 3}, 3.0),
        ({"validate": True}, 0.9),
        ({"batch": 5, "replay": 69}, 2.0),  # as many images a step, twice the steps
        ({"updates": 2}, 2.0),
        ({"replay": 138}, 2.0),
        ({"lr": 0.1, "memory": 200, "seed": 7}, 1.0),
    ],
)
def test_a_time_is_scaled_to_the_stream_and_its_images(
    no_timing: None, changes: dict[str, Any], factor: float
) -> None:
    known = [record(planned("er", data="cifar10"), 2000.0)]
    (found,) = project([planned("er", data="cifar10", **changes)], known)
    assert found == pytest.approx(2000.0 * factor, rel=1e-3)


def test_the_most_similar_records_of_a_method_count(no_timing: None) -> None:
    dear, cheap = (planned("otc", data="mnist", distill=d) for d in (1.0, 0.0))
    known = [record(dear, 140.0), record(cheap, 80.0), record(cheap, 80.0)]
    assert project([dear, cheap], known) == pytest.approx([140.0, 80.0])
    other = planned("otc", data="mnist", distill=2.0)
    assert project([other], known) == pytest.approx([80.0])  # the median of the kind


def test_a_method_without_records_is_projected_from_er(no_timing: None) -> None:
    known = [record(planned("er", data="mnist"), 30.0)]
    ratio = registry.measured_costs("mlp")["gsa"]["time"]
    gsa = planned("gsa", data="mnist")
    assert project([gsa], known) == pytest.approx([30.0 * ratio * gsa.settings.updates])


def test_where_a_net_was_not_measured_images_stand_for_time(
    no_timing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = {"mlp": {"er": {"images": 74, "time": 1}, "scr": {"images": 148, "time": 9}}}
    monkeypatch.setattr(registry, "measured_costs", lambda net: costs.get(net, {}))
    known = [record(planned("er", data="cifar10"), 2000.0)]
    assert project([planned("scr", data="cifar10")], known) == pytest.approx([4000.0])


def test_other_data_count_by_their_pixels_and_another_precision_as_it_is(no_timing: None) -> None:
    known = [record(planned("er", data="cifar10"), 2000.0)]
    times = project(
        [planned("er", data=name) for name in ("cifar100", "tiny-imagenet")]
        + [planned("er", data="cifar10", precision="bfloat16")],
        known,
    )
    assert times == pytest.approx([2000.0, 2000.0 * 4 * 2, 2000.0])


def test_an_unknown_kind_is_measured_once(
    plan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = []
    monkeypatch.setattr(estimate, "measure", lambda p: timed.append(p.method) or 0.5)
    one, two, other = project([plan(seed=1), plan(seed=2), plan(epochs=400)], [])
    assert timed == ["er"]
    assert one == two == pytest.approx(0.5 * 12)
    assert one is not None
    assert other == pytest.approx(400 * one)
    timed.clear()
    known, strange = planned("scr", data="mnist"), planned("ocm", data="mnist")
    monkeypatch.delitem(costs := registry.measured_costs("mlp"), "ocm")
    monkeypatch.setattr(registry, "measured_costs", lambda _: costs)
    assert None not in project([known, planned("gsa", data="mnist"), strange], [])
    assert timed == ["er", "ocm"]  # ER stands for the methods whose relative cost is known


def test_timing_takes_a_few_steps(plan: Callable[..., Any]) -> None:
    found = measure(plan())
    assert found is not None
    assert 0 < found < 10
    assert measure(plan("bic")) is not None  # needs to be told of tasks


def test_unknown_data_have_no_estimate(plan: Callable[..., Any]) -> None:
    assert measure(plan(data="mine")) is None
    assert project([plan(data="mine")], [record(plan(), 3.0)]) == [None]


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": None},
        {"seconds": "9"},
        {"steps": 0},
        {"steps": None},
        {"method": "unheard-of"},
        {"settings": {"updates": "2"}},
        {"settings": {"batch": 0}},
    ],
)
def test_a_record_that_tells_no_time_is_passed_over(
    plan: Callable[..., Any], no_timing: None, changes: dict[str, Any]
) -> None:
    sound, odd = record(plan(), 7.0), record(plan(), 99.0) | changes
    assert project([plan()], [odd, sound, odd]) == pytest.approx([7.0])


@pytest.mark.parametrize(
    "changes", [{}, {"validate": True}, {"limit_per_class": 12}, {"epochs": 2}, {"batch": 7}]
)
def test_batches_are_about_those_of_the_stream(changes: dict[str, Any]) -> None:
    plan = planned("er", data="digits", **changes)
    stream = Stream(np.asarray(data.load("digits").train_labels), plan.settings)
    assert batches(to_mapping(plan.settings)) == pytest.approx(stream.n_batches, rel=0.2)
