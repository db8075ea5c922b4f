"""The figures of studies: which runs make a line, and where its points and intervals are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from ocil.errors import OcilError
from ocil.report import figures, panels
from ocil.report.runs import Run

Make = Callable[..., dict[str, Any]]


def sweep(make: Make, *, choices: tuple[str, ...] = ("centroids",), **more: Any) -> list[Run]:
    """K in 1, 2, 4 at two memory sizes, two seeds each; accuracy is known by construction."""
    return [
        Run(make(
            "otc", memory=memory, seed=seed, shift=k - 2 * seed,
            settings={"components": k, "choice": choice}, **more,
        ))
        for memory in (200, 500) for choice in choices for k in (4, 1, 2) for seed in (0, 1)
    ]  # fmt: skip


def test_a_line_for_each_memory_and_choice(make_record: Make) -> None:
    (chart,) = panels.centroid_charts(sweep(make_record))
    assert chart.title == "mnist"
    assert [s.name for s in chart.series] == ["otc (memory 200)", "otc (memory 500)"]
    line = chart.series[0]
    assert line.x == [1.0, 2.0, 4.0]
    # the averaged weights are 5 better: 80 + 5 + k, and two less for seed 1
    assert line.y == pytest.approx([85.0, 86.0, 88.0])
    half = t.ppf(0.975, 1) * np.sqrt(2) / np.sqrt(2)
    assert line.low == pytest.approx([y - half for y in line.y])
    assert line.high == pytest.approx([y + half for y in line.y])
    (chart,) = panels.centroid_charts(sweep(make_record, choices=("centroids", "random")))
    names = [s.name for s in chart.series]
    assert names[:2] == ["otc (memory 200, choice=centroids)", "otc (memory 200, choice=random)"]
    assert len(names) == 4
    assert len({s.look for s in chart.series}) == 4


def test_data_sets_have_panels_of_their_own(make_record: Make) -> None:
    records = sweep(make_record) + sweep(make_record, data="digits")
    assert [c.title for c in panels.centroid_charts(records)] == ["digits", "mnist"]
    single = [run for run in records if run.seed == 0]
    (line, *_) = panels.centroid_charts(single)[0].series
    assert line.low == line.high == line.y  # one run has no interval


def test_without_a_sweep_there_is_one_sentence(make_record: Make) -> None:
    for records in ([make_record()], [make_record("otc", settings={"components": 4})]):
        with pytest.raises(OcilError, match="ocil study figure-centroids"):
            panels.centroid_charts(map(Run, records))


def test_a_record_with_an_odd_number_of_centroids_is_left_out(make_record: Make) -> None:
    odd: tuple[Any, ...] = ("4", -1, 10**9, None, [4])
    records = [Run(make_record("otc", memory=200, settings={"components": k})) for k in odd]
    (chart,) = panels.centroid_charts(sweep(make_record) + records)
    assert [s.x for s in chart.series] == [[1.0, 2.0, 4.0]] * 2


def test_a_line_for_each_method_through_the_tasks(make_record: Make) -> None:
    records = [make_record(m, seed=s, shift=s) for m in ("er", "otc") for s in (0, 2)]
    records += [make_record("er", memory=1500), make_record("er", steps=2, settings={"updates": 2})]
    first, second = panels.task_charts(map(Run, records))
    assert (first.title, second.title) == ("mnist, memory 500", "mnist, memory 1500")
    assert [s.name for s in first.series] == ["er (updates=1)", "er (updates=2)", "otc"]
    assert first.series[2].x == [1.0, 2.0, 3.0]
    assert first.series[2].y == pytest.approx([96.0, 91.0, 86.0])


def test_accuracy_against_images_has_a_mark_for_each_group(make_record: Make) -> None:
    dear = {"backbone_images_per_step": 370.0}
    records = [make_record("otc", seed=s, shift=s, **dear) for s in (0, 2)]
    records += [make_record("er", backbone_images_per_step=74.0), make_record("er", memory=1500)]
    first, second = panels.cost_charts(map(Run, records))
    assert (first.title, second.title) == ("mnist, memory 500", "mnist, memory 1500")
    assert [(s.name, s.x, s.y) for s in first.series] == [
        ("er", [74.0], pytest.approx([85.0])),
        ("otc", [370.0], pytest.approx([86.0])),
    ]
    assert first.series[0].low == first.series[0].high == first.series[0].y
    assert first.series[1].low[0] < 86 < first.series[1].high[0]
    silent = make_record()
    del silent["backbone_images_per_step"]
    with pytest.raises(OcilError, match="how many images"):
        panels.cost_charts([Run(silent)])


def test_accuracy_against_bytes_is_a_line_for_each_method(make_record: Make) -> None:
    wide = [
        make_record("slda", bytes_held=n, shift=n / 1e6, settings={"width": n}) for n in (4e6, 1e6)
    ]
    (chart,) = panels.byte_charts(map(Run, [*wide, make_record("er", bytes_held=2e6)]))
    assert [(s.name, s.x) for s in chart.series] == [("er", [2e6]), ("slda", [1e6, 4e6])]
    assert chart.series[1].y == pytest.approx([86.0, 89.0])
    silent = make_record()
    del silent["bytes_held"]
    with pytest.raises(OcilError, match="how many bytes"):
        panels.byte_charts([Run(silent)])


@pytest.mark.parametrize("ending", ["pdf", "png"])
def test_panels_become_one_file(make_record: Make, tmp_path: Path, ending: str) -> None:
    records = [make_record(), make_record(data="digits"), make_record("otc")]
    charts = panels.task_charts(map(Run, records))
    path = figures.save(figures.grid(charts, columns=1), tmp_path / f"a.{ending}")
    assert path.read_bytes()[:4] in (b"%PDF", b"\x89PNG")
