"""Projected times of cells that were not run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.learners import registry
from ocil.learners.registry import relative_cost
from ocil.report import times
from ocil.report.cells import Cell
from ocil.report.published import find
from ocil.report.times import Times

Make = Callable[..., dict[str, Any]]
RESNET = {"net": "resnet18", "augment": "full"}


def seconds(records: list[dict[str, Any]], method: str, data: str, memory: int) -> float | None:
    offline = method == "derpp"
    number = find(method, data, memory, "accuracy", offline=offline)
    assert number
    return Times(records).seconds(Cell((number,)))


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
    records = [made("gsa", "cifar10", 3.0, steps=3)]
    assert seconds(records, "gsa", "cifar10", 200) == pytest.approx(5000 * 1.0)
    assert (
        seconds([made("gsa", "cifar10", 1.0, precision="bfloat16")], "gsa", "cifar10", 200) is None
    )


def test_else_er_times_the_relative_cost(made: Make) -> None:
    ratio = relative_cost("mose", "resnet18")
    assert ratio is not None and ratio > 1
    here = [made("er", "cifar10", 2.0), made("er", "cifar100", 9.0)]
    assert seconds(here, "mose", "cifar10", 200) == pytest.approx(5000 * 2.0 * ratio)
    alike = [made("er", "cifar100", 3.0), made("er", "tiny-imagenet-20", 99.0)]
    assert seconds(alike, "mose", "cifar10", 200) == pytest.approx(5000 * 3.0 * ratio)
    larger = [made("er", "tiny-imagenet-20", 8.0)]  # four times the pixels
    assert seconds(larger, "mose", "cifar10", 200) == pytest.approx(5000 * 2.0 * ratio)


def test_nothing_to_go_by(made: Make) -> None:
    assert seconds([], "mose", "cifar10", 200) is None
    assert seconds([made("er", "fashion-mnist", 1.0, net="mlp")], "otc", "mnist", 500) is None
    odd = made("er", "cifar10", 1.0, steps="two") | {"method": "er"}
    assert seconds([odd, made("er", "cifar10", 1.0, steps=0)], "er", "cifar10", 200) == 5000.0


def test_a_study_tells_the_number_of_passes(
    made: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "table-offline.toml"
    study.write_text(
        '[[grid]]\nmethod = ["derpp"]\ndata = "cifar10"\nmemory = [200]\nlimit_per_class = 9\n'
        'epochs = 2\n[[grid]]\nmethod = ["derpp"]\ndata = "cifar10"\nmemory = [200, 500]\n'
        "epochs = 50\nbatch = 32\n"
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
