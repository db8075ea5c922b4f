"""`ocil figure KIND DIR... --out FILE`: a study's figure as PDF or PNG, without torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ocil.commands.parsing import Positional, say
from ocil.errors import OcilError
from ocil.report.runs import Run, read_runs

if TYPE_CHECKING:
    from ocil.report.charts import Chart
    from ocil.report.latent import Kept

Kind = Literal["latent", "centroids", "through-tasks", "cost", "bytes", "modality"]


@dataclass(frozen=True)
class Figure:
    """A figure from records: PDF or PNG."""

    kind: Positional[Kind]
    """latent: t-SNE of test features with centroids; centroids: accuracy against their number;
    through-tasks: accuracy after each task; cost: accuracy against images through the net;
    bytes: accuracy against bytes held; modality: how many Gaussians a class needs."""
    folders: Positional[tuple[Path, ...]]
    """Folders with records below them."""
    out: Path = Path("figure.pdf")
    """File to write, .pdf or .png."""
    dims: int = 16
    """Modality: directions of largest variance that are kept."""

    def __call__(self) -> None:
        from ocil.report import figures

        if not self.folders:
            raise OcilError("`ocil figure` needs a folder with records, such as results/modality.")
        if self.out.suffix not in (".pdf", ".png"):  # said before minutes of work
            raise OcilError(
                f"A figure ends in .pdf or .png, not in '{self.out.suffix}'; rename it."
            )
        if self.dims < 1:
            raise OcilError(f"--dims is {self.dims} but must be at least 1.")
        drawn = self.charts(read_runs(self.folders))
        figures.save(figures.grid(drawn, side=3.4 if len(drawn) > 1 else 4.8), self.out)
        say(f"Figure: {self.out}")

    def charts(self, runs: Sequence[Run]) -> Sequence[Chart]:
        """The panels of the figure; modality prints its table too."""
        from ocil.paper import modality
        from ocil.report import panels
        from ocil.report.render import to_markdown

        if self.kind == "latent":
            return panels.latent_charts(self._with_latents(runs))
        if self.kind == "modality":
            found = modality.modalities(self._with_latents(runs), self.dims)
            say(modality.explanation(self.dims))
            sys.stdout.write(f"\n{to_markdown(modality.modality_table(found))}\n")
            return modality.modality_charts(found)
        draw = {
            "centroids": panels.centroid_charts,
            "through-tasks": panels.task_charts,
            "cost": panels.cost_charts,
            "bytes": panels.byte_charts,
        }
        return draw[self.kind](runs)

    def _with_latents(self, runs: Sequence[Run]) -> list[Kept]:
        from ocil.report.latent import find_latents

        if found := find_latents(runs):
            return found
        raise OcilError(
            f"No run below {self.folders[0]} kept its latents; run one with "
            "`ocil run METHOD --latents`."
        )
