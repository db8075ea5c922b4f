"""The figures of studies as charts: a panel for each data set, or for each run in latent pictures.

Read-outs are the ones that the runs report; intervals are 95 % (Student's t) over seeds, or over
classes where a chart says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ocil import text
from ocil.errors import OcilError
from ocil.report import axes, charts
from ocil.report.charts import Chart, Series
from ocil.report.compare import KNOWN, alike, difference, leader, leading
from ocil.report.details import through_tasks
from ocil.report.groups import Group, group, labels, names
from ocil.report.latent import Kept, latent_chart, titles
from ocil.report.runs import Run
from ocil.run import metrics

COSTS = {
    "seconds": ("seconds", "seconds of learning"),
    "images": ("backbone_images_per_step", "images through the net per batch"),
    "bytes": ("bytes_held", "bytes held"),
}
SETTING = "components"  # the number of centroids a class


def latent_charts(kept: Sequence[Kept]) -> list[Chart]:
    """The features and centroids of each run in the plane, a colour a class."""
    return [latent_chart(k, title) for k, title in zip(kept, titles(kept), strict=True)]


def centroid_charts(runs: Iterable[Run]) -> list[Chart]:
    """Final average accuracy against the centroids a class; a line for each memory and choice."""
    groups = [g for g in group(runs) if _centroids(g) and g.values("accuracy")]
    found = []
    for title, here in _places(groups, with_memory=False):
        sweeps: dict[tuple[object, ...], list[Group]] = {}
        for g in here:
            rest = {k: v for k, v in g.settings.items() if k != SETTING}
            sweeps.setdefault((g.memory, repr(sorted(rest.items()))), []).append(g)
        sweeps = {key: sweep for key, sweep in sweeps.items() if len(sweep) > 1}
        names = _names([sweep[0] for sweep in sweeps.values()])
        series = [
            _sweep(sweep, name, look)
            for look, (sweep, name) in enumerate(zip(sweeps.values(), names, strict=True))
        ]
        if series:
            found.append(sweep_chart(title, "centroids a class", "average accuracy (%)", series))
    if not found:
        raise OcilError(
            f"No two records here differ by {SETTING} alone; run `ocil study figure-centroids`."
        )
    return found


def _sweep(groups: Sequence[Group], name: str, look: int) -> Series:
    ordered = sorted(groups, key=_centroids)
    ends = [interval(g.values("accuracy")) for g in ordered]
    middle, low, high = ([end[part] for end in ends] for part in range(3))
    return Series(name, [float(_centroids(g)) for g in ordered], middle, low, high, look)


def _centroids(g: Group) -> int:
    """Their number, 0 where a record tells none that can be drawn."""
    told = g.settings.get(SETTING)
    return told if type(told) is int and 0 < told < 10_000 else 0


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and the ends of its 95 % interval, which are the mean itself for a single value."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    return metrics.paired_difference(values, [0.0] * len(values))


def task_charts(runs: Iterable[Run]) -> list[Chart]:
    """Average accuracy after each task; a line for each method, and for its settings if several."""
    found = []
    for title, here in _places(group(runs), with_memory=True):
        drawn = [
            through_tasks(g, g.readout, name) for g, name in zip(here, _names(here), strict=True)
        ]
        found.append(charts.curves(title, drawn))
    return found


def cost_charts(runs: Iterable[Run]) -> list[Chart]:
    """Final average accuracy against the images that go through the net for a batch."""
    groups = [g for g in group(runs) if g.values("accuracy") and g.fact("backbone_images_per_step")]
    found = []
    for title, here in _places(groups, with_memory=True):
        series = []
        for look, (g, name) in enumerate(zip(here, _names(here), strict=True)):
            images, (mean, low, high) = (
                g.fact("backbone_images_per_step"),
                interval(g.values("accuracy")),
            )
            assert images is not None
            series.append(Series(name, [images.mean], [mean], [low], [high], look))
        unit = "images through the net per batch"
        found.append(charts.points(title, unit, "average accuracy (%)", series))
    if not found:
        raise OcilError("No record here tells how many images went through the net.")
    return found


def sweep_chart(title: str, x_title: str, y_title: str, series: Sequence[Series]) -> Chart:
    """Lines over small whole numbers."""
    shown = [v for s in series for part in (s.y, s.low, s.high) for v in part]
    last = max(int(max(s.x)) for s in series)
    across = axes.whole(x_title, last)
    return Chart("lines", title, across, axes.linear(y_title, shown), tuple(series))


def _places(groups: Sequence[Group], with_memory: bool) -> list[tuple[str, list[Group]]]:
    """Groups by data and split (and memory), with a title for each panel."""
    found: dict[str, list[Group]] = {}
    for g in groups:
        title = g.data if g.split == "test" else f"{g.data} (validation)"
        if with_memory and g.memory is not None:
            title += f", memory {g.memory}"
        found.setdefault(text.plain(title, 60), []).append(g)
    return list(found.items())


def _names(groups: Sequence[Group]) -> list[str]:
    """Method, memory where it differs, and the settings that tell one method's groups apart."""
    found = {}
    for method in {g.method for g in groups}:
        own = [g for g in groups if g.method == method]
        several = len({g.memory for g in own}) > 1
        for g, label in zip(own, labels(own), strict=True):
            parts = [method] + [f"memory {g.memory}"] * several + [label] * bool(label)
            found[id(g)] = text.plain(", ".join(parts), 60)
    return [found[id(g)] for g in groups]


def comparison_charts(groups: Sequence[Group]) -> dict[str, Chart]:
    """The page's three pictures for every stream and memory of a data set, by name of their file:
    paired differences from the leader, accuracy through the tasks, and cost against accuracy."""
    found: dict[str, Chart] = {}
    for number, block in enumerate(alike(groups).values(), 1):
        shown = leading([g for g in block if g.values("accuracy")])
        called = names(shown, KNOWN)
        if len(shown) < 2:
            continue
        drawn = [through_tasks(g, g.readout, called[id(g)]) for g in shown]
        found[f"block-{number}-tasks"] = charts.curves("Through the tasks", drawn)
        for name, (key, unit) in COSTS.items():
            if series := _costs(shown, called, key):
                chart = charts.points("", unit, "average accuracy (%)", series)
                found[f"block-{number}-{name}"] = chart
        best = leader(shown)
        rows = []
        for look, g in enumerate(shown):
            d = difference(g, best)
            if g is not best and d.mean is not None:
                rows.append(Series(called[id(g)], [d.mean], [0.0], [d.low], [d.high], look))
        if rows:
            title = f"percent points above {called[id(best)]}"
            found[f"block-{number}-differences"] = charts.rows("", title, rows, zero=True)
    return found


def _costs(groups: Sequence[Group], called: dict[int, str], key: str) -> list[Series]:
    series = []
    for look, g in enumerate(groups):
        if (cost := g.fact(key)) and cost.mean > 0:
            mean, low, high = interval(g.values("accuracy"))
            series.append(Series(called[id(g)], [cost.mean], [mean], [low], [high], look))
    return series
