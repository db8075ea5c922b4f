"""Projected times of cells that were not run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.learners import registry
from ocil.learners.registry import relative_cost
from ocil.paper import times
from ocil.paper.cells import Cell
from ocil.paper.published import Printed, printed
from ocil.paper.times import Times
from ocil.report.runs import Run

Make = Callable[..., dict[str, Any]]


def find(method: str, data: str, memory: int, offline: bool) -> Printed:
    asked = (method, data, memory, "accuracy", offline)
    return next(n for n in printed() if (n.method, n.data, n.memory, n.metric, n.offline) == asked)


RESNET = {"net": "resnet18", "augment": "full"}


def seconds(records: list[dict[str, Any]], method: str, data: str, memory: int) -> float | None:
    offline = method == "derpp"
    number = find(method, data, memory, offline)
    return Times([Run(record) for record in records]).seconds(Cell((number,)))


@pytest.fixture
def made(make_run: Make) -> Callable[..., dict[str, Any]]:
    """A record of 1 000 batches at `each` seconds."""

    def make(method: str, data: str, each: float, **settings: Any) -> dict[str, Any]:
        run = make_run(method, data=data, settings=RESNET | settings)
        return run | {"seconds": 1000 * each, "steps": 1000}

    return make


def test_the_methods_own_records_come_first(made: Make) -> None:
    records = [made("gsa", "cifar10", each) for each in (0.5, 2.0, 9.0)] + [
        made("er", "cifar10", 1.0)
    ]
    assert seconds(records, "gsa", "cifar10", 200) == pytest.approx(5000 * 2.0)
    records = [made("gsa", "cifar10", 3.0, updates=3)]
    assert seconds(records, "gsa", "cifar10", 200) == pytest.approx(5000 * 1.0)
    other = [made("gsa", "cifar10", 1.0, precision="bfloat16")]  # better than nothing
    assert seconds(other, "gsa", "cifar10", 200) == pytest.approx(5000 * 1.0)


def test_else_er_times_the_relative_cost(made: Make) -> None:
    ratio = relative_cost("mose", "resnet18")
    assert ratio is not None and ratio > 1
    here = [made("er", "cifar10", 2.0), made("er", "cifar100", 9.0)]
    assert seconds(here, "mose", "cifar10", 200) == pytest.approx(5000 * 2.0 * ratio)
    alike = [made("er", "cifar100", 3.0)]
    assert seconds(alike, "mose", "cifar10", 200) == pytest.approx(5000 * 3.0 * ratio)
    larger = [made("er", "tiny-imagenet-20", 8.0)]  # four times the pixels
    assert seconds(larger, "mose", "cifar10", 200) == pytest.approx(5000 * 2.0 * ratio)


def test_nothing_to_go_by(made: Make) -> None:
    assert seconds([], "mose", "cifar10", 200) is None
    assert seconds([made("er", "fashion-mnist", 1.0, net="mlp")], "otc", "mnist", 500) is None
    odd = [made("er", "cifar10", 1.0, updates=steps) for steps in ("two", 0)]
    assert seconds(odd, "er", "cifar10", 200) is None


def test_a_study_tells_the_number_of_passes(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "table-offline.toml"
    study.write_text(
        '[[grid]]\nmethod = ["derpp"]\ndata = "cifar10"\nmemory = [200]\nlimit_per_class = 9\n'
        'epochs = 2\n[[grid]]\nmethod = ["derpp"]\ndata = "cifar10"\nmemory = [200, 500]\n'
        "epochs = 50\nbatch = 32\nreplay = 42\n"
    )
    record = [made("derpp", "cifar10", 1.0)]
    monkeypatch.setattr(times, "shipped", dict)
    assert seconds(record, "derpp", "cifar10", 200) is None
    monkeypatch.setattr(times, "shipped", lambda: {"table-offline": study})
    assert seconds(record, "derpp", "cifar10", 200) == pytest.approx(50 * 1563)
    assert seconds(record, "derpp", "cifar10", 5120) is None


def test_costs_by_images_where_the_time_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"mlp": {"er": {"images": 50.0}, "gsa": {"images": 150.0, "time": 2.0}}}
    monkeypatch.setattr(registry, "measured_costs", lambda net: known.get(net, {}))
    assert relative_cost("gsa", "mlp") == 2.0
    assert relative_cost("gsa", "resnet18") == 3.0
    assert relative_cost("mine", "mlp") is None


def test_an_offline_cell_has_the_epochs_net_and_width_of_its_preset() -> None:
    number = find("derpp", "cifar10", 200, offline=True)
    settings = times.planned(number)
    assert settings is not None
    assert (settings["epochs"], settings["width"], settings["batch"]) == (50, 64, 32)


def test_timed_steps_stand_in_for_records(tmp_path: Path) -> None:
    number = find("derpp", "cifar10", 200, offline=True)
    entry = {"method": "derpp", "settings": times.planned(number), "seconds": 3.0, "steps": 1}
    (tmp_path / "bench").mkdir()
    file = tmp_path / times.STEPS
    for content, known in ((json.dumps([entry, {}]), 50 * 1563 * 3.0), ("[", None)):
        file.write_text(content)
        assert Times([], tmp_path).seconds(Cell((number,))) == known
