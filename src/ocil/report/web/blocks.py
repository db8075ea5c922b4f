"""The comparison of all groups with one memory size: intervals, curves, costs, differences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ocil.report import lines
from ocil.report.charts import MOST_BANDS, Chart, curves, points, rows
from ocil.report.compare import FEWEST, interval, leading
from ocil.report.groups import Group, Summary
from ocil.report.tables import measured
from ocil.report.web.gallery import Gallery, legend
from ocil.report.web.member import Member
from ocil.report.web.pairs import pairs

_INTERVALS = f"at the end; bars are 95 % intervals of the mean, from {FEWEST} runs on"
BANDED = "mean over the runs, band of one deviation"


def block(
    section: str, size: int | None, members: Sequence[Member], gallery: Gallery
) -> dict[str, Any] | None:
    """Groups with this memory and those without any; None where there is nothing to compare."""
    here = [m for m in members if m.group.memory in (size, None)]
    kept = {id(g) for g in leading([m.group for m in here])}
    shown = [m for m in here if id(m.group) in kept]
    if len(shown) < 2:
        return None
    shown.sort(key=lambda m: -_mean(m.group.summary("accuracy")))
    note = f"{len(shown)} of {len(here)} configurations: the best of every method, then the most "
    own = [m for m in shown if m.group.memory == size]  # the floor would take up all the room
    charts = {
        "accuracy": (_intervals(own, "accuracy"), _INTERVALS),
        "forgetting": (_intervals(own, "forgetting"), _INTERVALS),
        "tasks": (_through(shown), BANDED if len(shown) <= MOST_BANDS else "mean over the runs"),
        "images": (_cost(own, "images"), "bars of one deviation"),
        "time": (_cost(own, "time"), "bars of one deviation; times as recorded"),
    }
    name = f"{section}-{size or 0}"
    pictures = [
        gallery.add(chart, said, f"{name}-{what}")
        for what, (chart, said) in charts.items()
        if any(len(s.x) for s in chart.series)
    ]
    return {
        "title": "Comparison" if size is None else f"Memory of {size:,}",
        "note": f"{note}accurate." if len(shown) < len(here) else "",
        "legend": legend([(m.look, m.name) for m in shown]),
        "pictures": pictures,
        "pairs": pairs(name, own, gallery),
    }


def _intervals(shown: Sequence[Member], metric: str) -> Chart:
    series = []
    for m in shown:
        if summary := m.group.summary(metric):
            ends = interval(m.group, metric)
            told = f"{measured(summary)}; {'one run' if summary.n == 1 else f'{summary.n} runs'}"
            told += f"; 95 % interval {ends[0]:.2f} to {ends[1]:.2f}" if ends else ""
            series.append(m.series(told, summary.mean, 0.0, ends))
    return rows(metric.capitalize(), f"{metric} (%)", series)


def _through(shown: Sequence[Member]) -> Chart:
    found = [
        replace(
            lines.through_tasks(m.group, m.group.readout, m.name), look=m.look, link=f"#{m.key}"
        )
        for m in shown
    ]
    return curves("Through the tasks", [line for line in found if len(line.x)])


def _cost(shown: Sequence[Member], what: str) -> Chart:
    """Final accuracy over what the whole stream cost."""
    unit = "images through the net" if what == "images" else "seconds of learning"
    series = []
    for m in shown:
        summary = m.group.summary("accuracy")
        cost = _mean(m.group.fact("seconds")) if what == "time" else _images(m.group)
        if summary and cost > 0:
            mean, half = summary.mean, summary.deviation
            told = f"{measured(summary)} %; at {cost:,.4g} {unit}"
            ends = None if half is None else (mean - half, mean + half)
            series.append(m.series(told, cost, mean, ends))
    return points(f"Accuracy against {what}", f"{unit}, whole stream", "accuracy (%)", series)


def _images(g: Group) -> float:
    per_step, steps = g.fact("backbone_images_per_step"), g.fact("steps")
    return per_step.mean * steps.mean if per_step and steps else -math.inf


def _mean(summary: Summary | None) -> float:
    return -math.inf if summary is None else summary.mean
