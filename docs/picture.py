"""Draw the README's pictures from the records of a study, as `make picture` does.

python docs/picture.py tasks DIR FILE.png   accuracy after each task, every method
python docs/picture.py pairs DIR FILE.png   OTC and its rivals, and the differences seed by seed
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ocil.report import charts, compare, figures
from ocil.report.charts import Chart, Series
from ocil.report.details import through_tasks
from ocil.report.groups import Group, group
from ocil.report.runs import read_runs
from ocil.settings import Settings

LOOKS = {"er": 0, "otc": 2}  # as in the picture of the tasks; all others look alike
OTHERS = 1


def tasks(groups: Sequence[Group], target: Path) -> None:
    curves = [through_tasks(g, g.readout, g.method) for g in groups]
    figures.save(figures.draw(charts.curves("", curves), (6.0, 3.6)), target)


def pairs(groups: Sequence[Group], target: Path) -> None:
    """Whole streams with the smallest memory of the study and all of its seeds, best first."""
    whole = [g for g in groups if not g.settings["limit_per_class"]]
    least = min(g.memory or 0 for g in whole)
    seeds = max(len(g.runs) for g in whole)
    known = [g for g in whole if g.memory == least and len(g.runs) == seeds]
    known.sort(key=lambda g: -mean(g))
    figure = figures.grid([accuracies(known), differences(known)], 2, side=4.0)
    figure.set_figheight(0.55 + 0.24 * len(known))
    figures.save(figure, target)


def mean(g: Group) -> float:
    summary = g.summary("accuracy")
    assert summary is not None
    return summary.mean


def accuracies(groups: Sequence[Group]) -> Chart:
    rows = []
    for g in groups:
        low, high = compare.interval(g, "accuracy") or (0, 0)
        look = LOOKS.get(g.method, OTHERS)
        rows.append(Series(name(g), [mean(g)], [0], [low], [high], look))
    return charts.rows("Final average accuracy, 95 % intervals", "percent", rows)


def differences(groups: Sequence[Group]) -> Chart:
    ours = next(g for g in groups if g.method == "otc")
    rows = []
    for theirs in groups:
        if theirs is not ours:
            d = compare.difference(ours, theirs)
            assert d.mean is not None
            rows.append(Series(name(theirs), [d.mean], [0], [d.low], [d.high], LOOKS["otc"]))
    return charts.rows("OTC less each, seed by seed", "percent points", rows, zero=True)


def name(g: Group) -> str:
    """Method and gradient steps, and what sets two groups of one method apart."""
    steps, ema = g.settings["updates"], g.settings["ema"]
    average = "" if ema == Settings().ema else f", average {ema}"
    return f"{g.method}, {steps} step{'s' * (steps > 1)}{average}"


if __name__ == "__main__":
    kind, folder, target = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    found = group(read_runs([folder]))
    {"tasks": tasks, "pairs": pairs}[kind](found, target)
