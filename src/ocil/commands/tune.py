"""`ocil tune METHOD`: search a method's settings on held-out training images."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ocil.commands.parsing import Positional, say
from ocil.commands.study import run_shown
from ocil.data.sources import named
from ocil.errors import Busy, OcilError
from ocil.files import locked, make_folder
from ocil.learners import registry
from ocil.report.charts import Chart, Series, linear
from ocil.run.folder import RunFolder
from ocil.settings import checked
from ocil.study.grid import cut, read_change
from ocil.study.jobs import Job
from ocil.study.places import check_place, open_runner
from ocil.study.tune import Search, search_space
from ocil.text import setting


@dataclass(frozen=True)
class Tune:
    """Search the settings of a method on held-out training images, with seeds from 100."""

    method: Positional[str]
    """Method (`ocil methods`)."""
    data: str = "digits"
    """Name of the data set (`ocil data list`)."""
    trials: int = 30
    """Choices of settings to try, those of an earlier call included."""
    seeds: int = 1
    """Runs of each trial, with seeds 100, 101, ...; their mean counts."""
    set: tuple[str, ...] = ()
    """A setting that is given and not searched, such as memory=500; may be given several times."""
    workers: int | None = None
    """Runs at a time, one process each; unless given 1, and on a cluster as many as fit."""
    on: str = "local"
    """Where to run: local, ray (a cluster on this machine), ray:ADDRESS or slurm."""
    per_gpu: int = 1
    """Runs that share a GPU on Ray, for settings with --device cuda."""
    slurm: tuple[str, ...] = ()
    """An option of SLURM jobs as submitit names it, such as timeout_min=60; several times."""
    out: Path = Path("tuning")
    """Trials go to OUT/SEARCH, with best.toml (a study) and trials.png."""
    data_dir: Path | None = None
    """Folder that holds a folder for each data set; else $OCIL_DATA, else the user's cache."""

    def __call__(self) -> None:
        """Go on until so many trials are made, then write what was found."""
        check_place(self.on, self.workers, self.per_gpu)
        for name, value in (("trials", self.trials), ("seeds", self.seeds)):
            if value < 1:
                raise OcilError(f"--{name} is {value} but must be at least 1.")
        named(self.data)  # says so if there is no such data set
        fields = registry.info(self.method).fields
        changes = dict(read_change(change) for change in self.set)
        for key in sorted(changes.keys() & {"data", "seed", "validate"}):
            raise OcilError(f"--set {key} is decided by the search itself; leave it out.")
        given = {"data": self.data} | checked(fields, changes, "--set")
        space = search_space(self.method, given)
        folder = self.out / cut("-".join(["search", self.method, self.data, *self.set]))
        where = (self.on, self.workers, self.data_dir, folder, self.per_gpu, self.slurm)
        say(f"Searching {', '.join(space)} of {self.method} on held-out images of {self.data}.")
        make_folder(folder)
        busy = Busy(f"Another process is searching in {folder}; wait for it.")
        with locked(folder / ".lock", busy), closing(open_runner(*where)) as runner:
            search = Search(self.method, given, self.trials, self.seeds, folder, runner)
            jobs: list[Job] = []
            search.watch(jobs)
            run_shown(jobs, runner, search.watch)
            for job in jobs:  # of trials that were given up
                shutil.rmtree(RunFolder(job.folder).checkpoints, ignore_errors=True)
            self._conclude(search, folder)

    def _conclude(self, search: Search, folder: Path) -> None:
        best = search.best
        if best is None:
            raise OcilError(f"None of {len(search.made)} trials ended with a result; see {folder}.")
        from ocil.report.figures import draw, save

        search.write_best(folder / "best.toml")
        save(draw(picture(search)), folder / "trials.png")
        words = ", ".join(f"{key}={setting(value)}" for key, value in best.params.items())
        say(
            f"Best of {len(search.made)} trials: {best.value:.2f} % with {words}.",
            f"Run it on the test images with `ocil study {folder / 'best.toml'}`; "
            f"all trials: {folder / 'trials.png'}.",
        )


def picture(search: Search) -> Chart:
    """Each trial's accuracy on held-out images: final, or at the step where it was given up."""
    whole = [(t.number, t.value) for t in search.made if t.state == search.states.COMPLETE]
    pruned = [
        (t.number, t.intermediate_values[t.last_step])
        for t in search.made
        if t.state == search.states.PRUNED and t.last_step is not None
    ]
    series = [
        Series(name, *zip(*points, strict=True), look=look)
        for look, (name, points) in enumerate([("to the end", whole), ("given up", pruned)])
        if points
    ]
    x = linear("trial", [number for number, _ in whole + pruned])
    y = linear("accuracy on held-out images (%)", [value for _, value in whole + pruned])
    return Chart("points", "", x, y, tuple(series))
