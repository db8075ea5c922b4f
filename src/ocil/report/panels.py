"""The figures of studies as charts: a panel for each data set, or for each run in latent pictures.

Read-outs are the ones that the runs report; intervals are 95 % (Student's t) over seeds, or over
classes where a chart says so.
"""

from collections.abc import Iterable, Sequence

from ocil import text
from ocil.errors import OcilError
from ocil.report import charts
from ocil.report.charts import Chart, Series
from ocil.report.compare import KNOWN, alike, difference, leader, one_each
from ocil.report.details import through_tasks
from ocil.report.groups import Group, group, names
from ocil.report.latent import Kept, latent_chart, titles
from ocil.report.runs import Run
from ocil.run import metrics

COSTS = {
    "seconds": ("seconds", "seconds of learning"),
    "images": ("backbone_images_per_step", "images through the net per batch"),
    "bytes": ("bytes_held", "bytes held"),
}
ACCURACY = "average accuracy (%)"
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
        told = names([sweep[0] for sweep in sweeps.values()])
        series = [
            _sweep(sweep, name, look)
            for look, (sweep, name) in enumerate(zip(sweeps.values(), told, strict=True))
        ]
        if series:
            found.append(sweep_chart(title, "centroids a class", ACCURACY, series))
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
            through_tasks(g, g.readout, name) for g, name in zip(here, names(here), strict=True)
        ]
        found.append(charts.curves(title, drawn))
    return found


def cost_charts(runs: Iterable[Run]) -> list[Chart]:
    """Final average accuracy against the images that go through the net for a batch."""
    key, unit = COSTS["images"]
    groups = [g for g in group(runs) if g.values("accuracy") and g.fact(key)]
    found = [
        charts.points(title, unit, ACCURACY, _costs(here, names(here), key))
        for title, here in _places(groups, with_memory=True)
    ]
    if not found:
        raise OcilError("No record here tells how many images went through the net.")
    return found


def byte_charts(runs: Iterable[Run]) -> list[Chart]:
    """Final average accuracy against bytes held: a line for each method, through its settings."""
    key, unit = COSTS["bytes"]
    groups = [g for g in group(runs) if g.values("accuracy") and g.fact(key)]
    found = []
    for title, here in _places(groups, with_memory=False):
        series = []
        for look, method in enumerate(dict.fromkeys(g.method for g in here)):
            own = [g for g in here if g.method == method]
            marks = _costs(own, [method] * len(own), key)
            points = sorted((s.x[0], s.y[0], s.low[0], s.high[0]) for s in marks)
            x, y, low, high = (list(part) for part in zip(*points, strict=True))
            series.append(Series(method, x, y, low, high, look))
        held = [x for s in series for x in s.x]
        ends = [v for s in series for part in (s.y, s.low, s.high) for v in part]
        axes = charts.logarithmic(unit, held), charts.linear(ACCURACY, ends)
        found.append(Chart("lines", title, *axes, tuple(series)))
    if not found:
        raise OcilError("No record here tells how many bytes were held.")
    return found


def sweep_chart(title: str, x_title: str, y_title: str, series: Sequence[Series]) -> Chart:
    """Lines over small whole numbers."""
    shown = [v for s in series for part in (s.y, s.low, s.high) for v in part]
    last = max(int(max(s.x)) for s in series)
    across = charts.whole(x_title, last)
    return Chart("lines", title, across, charts.linear(y_title, shown), tuple(series))


def _places(groups: Sequence[Group], with_memory: bool) -> list[tuple[str, list[Group]]]:
    """Groups by data and split (and memory), with a title for each panel."""
    found: dict[str, list[Group]] = {}
    for g in groups:
        title = g.data if g.split == "test" else f"{g.data} (validation)"
        if with_memory and g.memory is not None:
            title += f", memory {g.memory}"
        found.setdefault(text.plain(title, 60), []).append(g)
    return list(found.items())


def comparison_charts(groups: Sequence[Group]) -> dict[str, Chart]:
    """The page's three pictures for every stream and memory of a data set, by name of their file:
    paired differences from the leader, accuracy through the tasks, and cost against accuracy."""
    found: dict[str, Chart] = {}
    for number, block in enumerate(alike(groups).values(), 1):
        shown = one_each(block)
        if len(shown) < 2:
            continue
        told = names(shown, KNOWN)
        drawn = [through_tasks(g, g.readout, name) for g, name in zip(shown, told, strict=True)]
        found[f"block-{number}-tasks"] = charts.curves("Through the tasks", drawn)
        for name, (key, unit) in COSTS.items():
            if series := _costs(shown, told, key):
                chart = charts.points("", unit, ACCURACY, series)
                found[f"block-{number}-{name}"] = chart
        best = leader(shown)
        rows = []
        for look, (g, name) in enumerate(zip(shown, told, strict=True)):
            d = difference(g, best)
            if g is not best and d.mean is not None:
                rows.append(Series(name, [d.mean], [0.0], [d.low], [d.high], look))
        if rows:
            title = f"percent points above {told[shown.index(best)]}"
            found[f"block-{number}-differences"] = charts.rows("", title, rows, zero=True)
    return found


def _costs(groups: Sequence[Group], told: Sequence[str], key: str) -> list[Series]:
    series = []
    for look, (g, name) in enumerate(zip(groups, told, strict=True)):
        if (cost := g.fact(key)) and cost.mean > 0:
            mean, low, high = interval(g.values("accuracy"))
            series.append(Series(name, [cost.mean], [mean], [low], [high], look))
    return series
