"""Draw the README's pictures from the records of a study, as `make picture` does.

python docs/picture.py tasks DIR FILE.png   accuracy after each task, every method
python docs/picture.py pairs DIR FILE.png   OTC and its rivals, and the differences seed by seed
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ocil.report import charts, compare, figures, lines
from ocil.report.charts import Chart, Series
from ocil.report.groups import Group, group
from ocil.run.reading import find_records
from ocil.settings import Settings

LOOKS = {"er": 0, "otc": 2}  # as in the picture of the tasks


def tasks(groups: Sequence[Group], target: Path) -> None:
    curves = [lines.through_tasks(g, g.readout, g.method) for g in groups]
    figures.save(figures.curve_figure(curves, size=(6.0, 3.6)), target)


def pairs(groups: Sequence[Group], target: Path) -> None:
    """Groups with fewer than three seeds have no interval and are left out."""
    known = [g for g in groups if g.method in LOOKS and compare.interval(g, "accuracy")]
    panels = [accuracies(known), differences(known)]
    figures.save(figures.grid(panels, columns=2, side=3.7), target)


def accuracies(groups: Sequence[Group]) -> Chart:
    rows = []
    for g in groups:
        (low, high), summary = compare.interval(g, "accuracy") or (0, 0), g.summary("accuracy")
        assert summary is not None
        look = LOOKS[g.method]
        rows.append(Series(name(g), [summary.mean], [0], [low], [high], look))
    return charts.rows("Final average accuracy, 95 % intervals", "percent", rows)


def differences(groups: Sequence[Group]) -> Chart:
    rows = []
    for ours in (g for g in groups if g.method == "otc"):
        for theirs in (g for g in groups if g.method != "otc" and g.memory == ours.memory):
            d = compare.difference(ours, theirs)
            assert d.mean is not None
            look = LOOKS["otc"]
            rows.append(Series(name(theirs), [d.mean], [0], [d.low], [d.high], look))
    return charts.rows("OTC less each, seed by seed", "percent points", rows, zero=True)


def name(g: Group) -> str:
    steps, ema = g.settings["steps"], g.settings["ema"]
    average = "" if ema == Settings().ema else f", ema {ema}"
    return f"{g.method.upper()}, {steps} step{'s' * (steps > 1)}{average}, memory {g.memory}"


if __name__ == "__main__":
    kind, folder, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    found = group([record for _, record in find_records(folder)])
    {"tasks": tasks, "pairs": pairs}[kind](found, target)
