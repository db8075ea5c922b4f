"""`ocil figure KIND DIR... --out FILE`: a study's figure as PDF or PNG, without torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ocil.commands.parsing import Positional, parse, say
from ocil.errors import OcilError
from ocil.report.runs import Run, read_runs

if TYPE_CHECKING:
    from ocil.report.charts import Chart
    from ocil.report.latent import Kept

Kind = Literal["latent", "centroids", "through-tasks", "cost", "modality"]


@dataclass(frozen=True)
class FigureOptions:
    kind: Positional[Kind]
    """latent: t-SNE of test features with centroids; centroids: accuracy against their number;
    through-tasks: accuracy after each task; cost: accuracy against images through the net;
    modality: how many Gaussians a class needs."""
    folders: Positional[tuple[Path, ...]]
    """Folders with records below them."""
    out: Path = Path("figure.pdf")
    """File to write, .pdf or .png."""
    dims: int = 16
    """Modality: directions of largest variance that are kept."""


def figure(words: list[str]) -> None:
    """Draw one figure from the records below some folders."""
    options = parse(FigureOptions, words, "ocil figure", "A figure from records: PDF or PNG.")
    from ocil.report import figures

    if not options.folders:
        raise OcilError("`ocil figure` needs a folder with records, such as results/modality.")
    if options.out.suffix not in (".pdf", ".png"):  # said before minutes of work
        raise OcilError(f"A figure ends in .pdf or .png, not in '{options.out.suffix}'; rename it.")
    if options.dims < 1:
        raise OcilError(f"--dims is {options.dims} but must be at least 1.")
    drawn = charts(options)
    figures.save(figures.grid(drawn, side=3.4 if len(drawn) > 1 else 4.8), options.out)
    say(f"Figure: {options.out}")


def charts(options: FigureOptions) -> Sequence[Chart]:
    """The panels of the figure; modality prints its table too."""
    from ocil.report import panels

    runs = read_runs(options.folders)
    if options.kind == "latent":
        return panels.latent_charts(_with_latents(options, runs))
    if options.kind == "modality":
        return _modality(options, runs)
    draw = {
        "centroids": panels.centroid_charts,
        "through-tasks": panels.task_charts,
        "cost": panels.cost_charts,
    }
    return draw[options.kind](runs)


def _modality(options: FigureOptions, runs: Sequence[Run]) -> Sequence[Chart]:
    from ocil.paper import modality
    from ocil.report.render import to_markdown

    found = modality.modalities(_with_latents(options, runs), options.dims)
    say(modality.explanation(options.dims))
    sys.stdout.write(f"\n{to_markdown(modality.modality_table(found))}\n")  # lines stay whole
    return modality.modality_charts(found)


def _with_latents(options: FigureOptions, runs: Sequence[Run]) -> list[Kept]:
    from ocil.report.latent import find_latents

    found = find_latents(runs)
    if not found:
        raise OcilError(
            f"No run below {options.folders[0]} kept its latents; run one with "
            "`ocil run METHOD --latents`."
        )
    return found
