"""The figures of studies as charts: a panel for each data set, or for each run in latent pictures.

Read-outs are the ones that the runs report; intervals are 95 % (Student's t) over seeds, or over
classes where a chart says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ocil import text
from ocil.errors import OcilError
from ocil.report import charts, lines, looks, scale
from ocil.report.charts import Chart, Series
from ocil.report.groups import Group, Record, group, labels
from ocil.report.latent import Kept, titles
from ocil.report.modality import COMPONENTS, Modality
from ocil.report.web.clouds import clouds
from ocil.run import metrics

SETTING = "components"  # the number of centroids a class


def latent_charts(kept: Sequence[Kept]) -> list[Chart]:
    """The features and centroids of each run in the plane, a colour a class."""
    found = []
    for k, title in zip(kept, titles(list(kept)), strict=True):
        found += [replace(chart, title=title) for chart in clouds([k.path.parent])]
    return found


def centroid_charts(records: Iterable[Record]) -> list[Chart]:
    """Final average accuracy against the centroids a class; a line for each memory and choice."""
    groups = [g for g in group(records) if _centroids(g) and _finals(g)]
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
            found.append(_chart(title, "centroids a class", "average accuracy (%)", series))
    if not found:
        raise OcilError(
            f"No two records here differ by {SETTING} alone; run `ocil study figure-centroids`."
        )
    return found


def _sweep(groups: Sequence[Group], name: str, look: int) -> Series:
    ordered = sorted(groups, key=_centroids)
    ends = [interval(_finals(g)) for g in ordered]
    middle, low, high = ([end[part] for end in ends] for part in range(3))
    return Series(name, [float(_centroids(g)) for g in ordered], middle, low, high, look)


def _centroids(g: Group) -> int:
    """Their number, 0 where a record tells none that can be drawn."""
    told = g.settings.get(SETTING)
    return told if type(told) is int and 0 < told < 10_000 else 0


def _finals(g: Group) -> list[float]:
    known = [run["accuracy"] for run in g.numbers(g.readout)]
    return [accuracy for accuracy in known if accuracy is not None]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and the ends of its 95 % interval, which are the mean itself for a single value."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    return metrics.paired_difference(values, [0.0] * len(values))


def task_charts(records: Iterable[Record]) -> list[Chart]:
    """Average accuracy after each task; a line for each method, and for its settings if several."""
    found = []
    for title, here in _places(group(records), with_memory=True):
        drawn = [
            lines.through_tasks(g, g.readout, name)
            for g, name in zip(here, _names(here), strict=True)
        ]
        found.append(charts.curves(title, drawn))
    return found


def cost_charts(records: Iterable[Record]) -> list[Chart]:
    """Final average accuracy against the images that go through the net for a batch."""
    groups = [g for g in group(records) if _finals(g) and g.fact("backbone_images_per_step")]
    found = []
    for title, here in _places(groups, with_memory=True):
        series = []
        for look, (g, name) in enumerate(zip(here, _names(here), strict=True)):
            images, (mean, low, high) = g.fact("backbone_images_per_step"), interval(_finals(g))
            assert images is not None
            series.append(Series(name, [images.mean], [mean], [low], [high], look))
        axes = "images through the net per batch", "average accuracy (%)"
        found.append(charts.points(title, *axes, series))
    if not found:
        raise OcilError("No record here tells how many images went through the net.")
    return found


def modality_charts(found: Sequence[Modality]) -> list[Chart]:
    """NLL(K) - NLL(1) of the runs with the interval over classes, and level lines of one t."""
    series = []
    across = [float(k) for k in COMPONENTS]
    level = [1 + 7 * i / 99 for i in range(100)]  # that many carry no marks
    title, names = shared_start([m.title for m in found])
    for look, (m, name) in enumerate(zip(found, names, strict=True)):
        gains = [m.gain(k) for k in COMPONENTS]
        middle, high, low = ([-gain[part] for gain in gains] for part in range(3))
        series.append(Series(name, across, middle, low, high, look))
        one = float(m.students.mean(0).min() - m.gaussians[:, 0].mean())
        dashed = look + len(looks.COLOURS)  # the same colour
        series.append(Series(f"{name}: one Student t", level, [one] * 100, (), (), dashed))
    return [_chart(title, "Gaussians a class (K)", "held-out NLL against K = 1 (nats)", series)]


def shared_start(names: Sequence[str]) -> tuple[str, list[str]]:
    """The parts (between commas) with which all names begin, and what is left of each.

    >>> title, names = shared_start(["otc, mnist, preserve=0", "otc, mnist, preserve=1"])
    >>> title
    'otc, mnist'
    >>> names
    ['preserve=0', 'preserve=1']
    """
    parts = [name.split(", ") for name in names]
    count = 0
    while all(len(p) > count + 1 and p[count] == parts[0][count] for p in parts):
        count += 1
    return ", ".join(parts[0][:count]), [", ".join(p[count:]) for p in parts]


def _chart(title: str, x_title: str, y_title: str, series: Sequence[Series]) -> Chart:
    """Lines over small whole numbers."""
    shown = [v for s in series for part in (s.y, s.low, s.high) for v in part]
    last = max(int(max(s.x)) for s in series)
    across = scale.whole(x_title, last)
    return Chart("lines", title, across, scale.linear(y_title, shown), tuple(series))


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
