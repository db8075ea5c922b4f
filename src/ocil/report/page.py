"""The page: one HTML file with tables, pictures and the values of every seed, without a network.

Tables and findings are plain HTML. plotly and all data of the pictures are packed (gzip, base64)
and unpacked by the page's script: plotly once, the details of a data set when one is opened. The
policy names both scripts by their SHA-256, so a script that slipped in through a record would not
run even if it were not escaped.
"""

import base64
import gzip
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ocil import text
from ocil.errors import OcilError
from ocil.files import make_folder, write_atomic
from ocil.report import compare, style
from ocil.report.charts import Chart, Series, shade
from ocil.report.details import group_charts, shared_task_names
from ocil.report.files import ENDINGS, table_names, write_figures, write_tables
from ocil.report.groups import Group, by_place, group, own_labels
from ocil.report.render import NOTHING
from ocil.report.runs import TITLES, Run
from ocil.report.show import percent
from ocil.report.tables import costs, measured, memory

PAGE = "index.html"
METRICS = ("accuracy", "forgetting", "learning", "anytime", "worst")
COSTS = {"seconds": "seconds", "images": "", "bytes": "bytes_held"}
# heading -> what it means; nothing where the word says it. The first ones are words.
COLUMNS = {
    "method": "",
    "settings": "what tells this row from others of its method",
    "stream": "how much of the data set is learned, in how many passes",
    "read-out": "how the runs turn features into classes",
    "memory": "images that the replay memory holds",
    "accuracy": f"{TITLES['accuracy']} in percent, mean ± standard deviation over seeds",
    "95 % interval": f"of the mean, Student's t, from {compare.MIN_RUNS} runs on",
    "forgetting": f"{TITLES['forgetting']} in percent points",
    "images/step": "images that go through the net for one batch of the stream",
    "updates": "gradient steps for one batch of the stream",
    "MB held": "memory, averaged weights and whatever else a method keeps beside its net",
    "seconds": "time spent learning, as recorded",
    "runs": "runs that differ by their seed only",
}
WORDS = 4  # columns
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def write_page(runs: Sequence[Run], out_dir: Path | str, figures: bool = False) -> Path:
    """Write OUT_DIR/index.html and OUT_DIR/tables; with `figures` pictures as PDF and PNG too."""
    if not runs:
        raise OcilError("There is no record to report; run `ocil run` first or name its folder.")
    out_dir = Path(out_dir)
    groups = group(sorted(runs, key=lambda run: str(run.path)))
    page = render_page(runs, groups, out_dir)
    make_folder(out_dir)
    write_tables(groups, out_dir / "tables")
    if figures:
        write_figures(groups, out_dir / "figures")
    write_atomic(out_dir / PAGE, page.encode())  # last, so that what it links to is there
    return out_dir / PAGE


def render_page(runs: Sequence[Run], groups: Sequence[Group], out_dir: Path) -> str:
    """The text of the page; the links to the records are relative to out_dir."""
    try:
        import jinja2
        from markupsafe import Markup

        plotly, packed_plotly = _plotly()
    except ImportError:
        raise OcilError(
            "The page needs jinja2 and plotly; install them with `pip install ocil[report]`."
        ) from None
    places = by_place(groups)
    sections = [_section(number, members) for number, members in enumerate(places)]
    methods = list(dict.fromkeys(g.method for g in groups))
    data = {
        "methods": [text.plain(method) for method in methods],
        "colours": style.COLOURS,
        "t": _quantiles(max(len(g.runs) for g in groups)),
        "fewest": compare.MIN_RUNS,
        "sections": [_compared(members, methods) for members in places],
    }
    script = part("page.js")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined,
                                     trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    return environment.from_string(part("page.html")).render(
        sections=sections,
        findings=list(compare.findings(runs, [])),
        policy=POLICY.format(scripts=" ".join(_sum(code) for code in (script, plotly))),
        style=Markup(part("page.css")),
        script=Markup(script),
        plotly=packed_plotly,
        data=packed(data),
        details=[packed([_details(g, out_dir) for g in members]) for members in places],
    )


def part(name: str) -> str:
    """A file beside this one."""
    return (files("ocil.report") / name).read_text(encoding="utf-8")


@cache
def _plotly() -> tuple[str, str]:
    """Its code, and the same packed."""
    from plotly.offline import get_plotlyjs

    # a browser reads any line end of an inline script as \n before it takes the sum
    code = get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")
    return code, _pack(code)


def packed(value: Any) -> str:
    """JSON, compressed and in letters that no text can break out of."""
    return _pack(json.dumps(value, separators=(",", ":"), allow_nan=False))


def _pack(content: str) -> str:
    zipped = gzip.compress(content.encode(), compresslevel=9, mtime=0)
    return base64.b64encode(zipped).decode()


def _sum(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def _quantiles(most: int) -> list[float]:
    """t_{0.975, n} for n = 0, 1, ...: the script's intervals of paired differences."""
    from scipy.special import stdtrit

    return [0.0, *(round(float(stdtrit(n, 0.975)), 6) for n in range(1, max(most, 2)))]


def _section(number: int, members: list[Group]) -> dict[str, Any]:
    """One data set and split: what the template shows of it, the main comparison first."""
    blocks = compare.alike(members)
    labels = _labels(blocks, compare.KNOWN)
    main = compare.main_block(blocks)
    said = compare.finding(members)
    place = {id(g): n for n, g in enumerate(members)}
    rows = [
        (place[id(g)], _cells(g, labels[id(g)], where), f"{where}, {labels[id(g)]}".strip(", "))
        for where in sorted(blocks, key=lambda where: where != main)
        for g in blocks[where]
    ]
    kept = [n for n in range(len(COLUMNS)) if any(row[1][n] not in ("", NOTHING) for row in rows)]
    kinds = [" ".join(["left"] * (n < WORDS) + ["fold"] * (0 < n <= WORDS)) for n in kept]
    heads = list(COLUMNS.items())
    return {
        "id": f"s{number}",
        "data": text.plain(members[0].data),
        "tuning": members[0].split == "validation",
        "finding": said,
        "further": compare.further(members, blocks[main]) if said else "",
        "not_run": compare.not_run(members, blocks[main]) if said else "",
        "blocks": [
            (text.plain(where), [place[id(g)] for g in compare.one_each(block)], where == main)
            for where, block in blocks.items()
        ],
        "files": [
            (title, [(ENDINGS[e], f"tables/{name}.{e}") for e in ENDINGS])
            for title, name in table_names(number, members)
        ],
        "columns": [(*heads[n], kind) for n, kind in zip(kept, kinds, strict=True)],
        "rows": [(n, [cells[k] for k in kept], under) for n, cells, under in rows],
    }


def _labels(blocks: Mapping[str, Sequence[Group]], known: frozenset[str]) -> dict[int, str]:
    """By the id of each group: what tells it from others of its method, stream and memory."""
    found = [own_labels(block, known) for block in blocks.values()]
    return {key: label for labels in found for key, label in labels.items()}


def _cells(g: Group, label: str, where: str) -> list[str]:
    words = [text.plain(g.method), text.plain(label, 400), where.rpartition(", ")[0]]
    accuracy, forgetting = (measured(g.summary(metric)) for metric in ("accuracy", "forgetting"))
    ends = compare.between(g, "accuracy")
    told = [*words, text.plain(g.readout), memory(g), accuracy, ends, forgetting]
    return [*told, *costs(g), str(len(g.runs))]


def _compared(members: Sequence[Group], methods: Sequence[str]) -> list[dict[str, Any]]:
    """What the script compares: the numbers of every run, and a key that runs of a pair share."""
    blocks = compare.alike(members)
    labels = _labels(blocks, compare.KNOWN - {"updates"})
    streams = {id(g): where for where, block in blocks.items() for g in block}
    return [
        {
            "m": methods.index(g.method),
            "label": text.plain(labels[id(g)]),
            "where": text.plain(streams[id(g)]),
            "joint": g.settings.get("order") == "joint",
            "seeds": list(g.seeds),
            "pair": [_pair(run) for run in g.runs],
            "acc": _numbers(run.value("accuracy") for run in g.runs),
            "curve": [_numbers(run.curve(g.readout)) for run in g.runs],
            "cost": {key: _numbers(_cost(run, key) for run in g.runs) for key in COSTS},
        }
        for g in members
    ]


def _pair(run: Run) -> int:
    """Equal for runs of one seed on the same data, cut into the same tasks."""
    return zlib.crc32(json.dumps([run.record.get("data_fingerprint"), run.tasks]).encode())


def _cost(run: Run, kind: str) -> float | None:
    each, steps = run.record.get("backbone_images_per_step"), run.record.get("steps")
    images = None if each is None or steps is None else each * steps
    return images if kind == "images" else run.record.get(COSTS[kind])


def _details(g: Group, out_dir: Path) -> dict[str, Any]:
    """What opens below a row: every seed, read-out and picture, the commands and the settings."""
    record = g.first.record
    known = record["settings"] | {"preset": record.get("preset") or "default"}
    settings = sorted((text.plain(k), text.setting(v)) for k, v in known.items() if k != "seed")
    return {
        "numbers": [[TITLES[m], measured(g.summary(m)), compare.between(g, m)] for m in METRICS],
        "runs": [
            [run.seed, *(percent(run.value(m)) for m in METRICS), *_facts(run), _link(run, out_dir)]
            for run in g.runs
        ],
        "readouts": [
            [text.plain(name), *(measured(g.summary(m, name)) for m in METRICS)]
            for name in g.readouts
        ],
        "readout": text.plain(g.readout),
        "tasks": shared_task_names(g) or [],
        "charts": [chart_data(chart) for chart in group_charts(g).values()],
        "commands": [text.command(run.record["command"]) for run in g.runs],
        "settings": settings,
    }


def _facts(run: Run) -> list[str]:
    keys = {"backbone_images_per_step": 1.0, "bytes_held": 1e-6, "seconds": 1.0}
    known = {key: run.record.get(key) for key in keys}
    return [NOTHING if v is None else f"{v * keys[key]:,.4g}" for key, v in known.items()]


def _link(run: Run, out_dir: Path) -> str:
    try:
        return quote(os.fsencode(Path(os.path.relpath(run.path, out_dir)).as_posix()))
    except ValueError:  # another drive on Windows
        return run.path.resolve().as_uri()


def chart_data(chart: Chart) -> dict[str, Any]:
    """What the script draws; keys are short because there are many charts."""
    found: dict[str, Any] = {
        "kind": chart.kind,
        "title": text.plain(chart.title),
        **{
            name: {"t": axis.title, "r": _numbers([axis.low, axis.high]), "log": axis.log}
            for name, axis in (("x", chart.x), ("y", chart.y))
        },
        "s": [_series(series) for series in chart.series],
        "b": _numbers(chart.borders),
    }
    if chart.matrix is not None:
        found["z"] = [_numbers((shade(float(v)) for v in row), 3) for row in chart.matrix]
        found["v"] = [_numbers(row) for row in chart.matrix]
    return found


def _series(series: Series) -> dict[str, Any]:
    return {
        "n": text.plain(series.name),
        "look": style.parts(series.look),
        "x": _numbers(series.x),
        "y": _numbers(series.y),
        **({"a": _numbers(series.low), "c": _numbers(series.high)} if len(series.low) else {}),
        **({"big": 1} if series.notes else {}),
    }


def _numbers(values: Iterable[float | None], digits: int = 5) -> list[float | None]:
    """Rounded to what a screen can show; null where there is none."""
    known = (None if v is None or not math.isfinite(v) else v for v in values)
    return [None if v is None else float(f"{v:.{digits}g}") for v in known]
