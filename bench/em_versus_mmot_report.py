"""The table and the figure of `em_versus_mmot.py`, from its record."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import mixture_costs

STYLES = ("-", "--", "-.", ":")
COLUMNS = {
    "nll": ("NLL / d", ".3f"),
    "nll_old": ("earlier tasks", ".3f"),
    "nll_raw": ("unshrunk", ".2f"),
    "similarity": ("similarity %", ".1f"),
    "mahalanobis": ("Mahalanobis %", ".1f"),
    "ms": ("ms", ".2f"),
    "ratio": ("ratio", ".2f"),
    "peak_kb": ("peak kB", ".0f"),
    "held_kb": ("held kB", ".0f"),
    "images": ("extra images", ".1f"),
}


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(heads: list[str], rows: list[list[str]]) -> str:
    rule = row(["---"] * len(heads))
    return "\n".join([row(heads), rule, *(row(cells) for cells in rows)]) + "\n"


def markdown(record: dict[str, Any]) -> str:
    """The page: the stream, the comparison, the exponents."""
    stream = record["stream"]
    rows = [
        [name, *(format(found[key], form) for key, (_, form) in COLUMNS.items())]
        for name, found in record["summary"].items()
    ]
    heads = ["mixtures by", *(head for head, _ in COLUMNS.values())]
    base, bounds = written(mixture_costs.BASE), mixture_costs.PAPER
    return f"""# EM against MMOT on a recorded latent stream

Made by `OMP_NUM_THREADS=1 python bench/em_versus_mmot.py --out results/mixture`, which says what
the rows and columns are; every number is in em_versus_mmot.json.

Stream: {stream["data"]}, {stream["limit_per_class"]} images a class, {record["steps"]} steps of
{stream["batch"]} + {stream["replay"]} features, memory {stream["memory"]}; em-refit fits every
{stream["every"]} steps; medians over seeds {", ".join(map(str, record["seeds"]))}. From the end of
its task to the end of the stream the mean of a class moves by {record["drift"]:.2f} of the class's
rms radius.

{table(heads, rows)}
![NLL, accuracy, time and exponents](em_versus_mmot.png)

## Measured exponents

Slope of log time over the logarithm of one quantity, and in brackets over its last doubling; the
others are at {base}.
The paper's bounds for one class and batch are {bounds["EM"]["time"]} for EM and
{bounds["MMOT"]["time"]} for MMOT: no exponent is above 1. `dual` is the paper's MMOT with all pairs
of S samples and B points, `sinkhorn` ours, `batch EM` takes I_EM steps.

{exponents(record["costs"], "time_exponents")}
Slope of log peak memory of an update; the paper's bounds are {bounds["EM"]["memory"]} for EM and
{bounds["MMOT"]["memory"]} for MMOT.

{exponents(record["costs"], "memory_exponents")}"""


def written(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in sizes.items())


def exponents(costs: dict[str, dict[str, Any]], kind: str) -> str:
    """One row a quantity, from its smallest to its largest value."""
    rows = []
    for quantity, found in costs.items():
        values = next(iter(found.values()))["values"]
        pairs = [found[m][kind] if m in found else None for m in mixture_costs.MATTERS]
        cells = ["{:.2f} ({:.2f})".format(*pair) if pair else "" for pair in pairs]
        rows.append([quantity, f"{values[0]} to {values[-1]}", *cells])
    return table(["quantity", "range", *mixture_costs.MATTERS], rows)


def draw_figure(record: dict[str, Any], path: Path) -> None:
    """NLL of earlier tasks, accuracy, time of an update, exponents of time."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    for at, key, label in (
        (axes[0, 0], "nll_old", "NLL / d of held-out features, earlier tasks"),
        (axes[0, 1], "similarity", "accuracy of the read-out, %"),
    ):
        for i, name in enumerate(record["summary"]):
            steps, values = _curve(record["runs"], name, key)
            at.plot(steps, values, STYLES[i % 4], color=f"C{i}", label=name)
        at.set(xlabel="step", ylabel=label)
    axes[0, 0].legend(fontsize=7, ncols=2)
    names = list(record["summary"])
    axes[1, 0].barh(names, [record["summary"][name]["ms"] for name in names])
    axes[1, 0].set(xlabel="processor ms an update, fits included")
    axes[1, 0].invert_yaxis()
    _bars(axes[1, 1], record["costs"])
    figure.savefig(path, dpi=150)


def _curve(runs: list[dict[str, Any]], name: str, key: str) -> tuple[list[int], list[float]]:
    """Medians over the seeds at the steps they share."""
    columns = list(zip(*(run[name]["curve"] for run in runs), strict=False))
    steps = [column[0]["step"] for column in columns]
    return steps, [statistics.median(look[key] for look in column) for column in columns]


def _bars(axes: Any, costs: dict[str, dict[str, Any]]) -> None:
    methods, wide = list(mixture_costs.MATTERS), 0.2
    for i, method in enumerate(methods):
        there = [(x, q) for x, q in enumerate(costs) if method in costs[q]]
        heights = [costs[q][method]["time_exponents"][1] for _, q in there]
        axes.bar([x + (i - 1.5) * wide for x, _ in there], heights, wide, label=method)
    axes.axhline(1.0, color="#888888", linewidth=0.8)
    axes.set_xticks(range(len(costs)), list(costs))
    axes.set(
        ylabel="exponent of time, last doubling", xlabel="1: the most that the paper's bounds allow"
    )
    axes.legend(fontsize=7)
