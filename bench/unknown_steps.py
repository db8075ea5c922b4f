"""Times a few steps for cells of the paper's tables whose cost no record tells.

`nice python bench/unknown_steps.py results` writes results/bench/steps.json, which `ocil results`
reads for its projected hours: a method's settings and the seconds of a batch on noise, one thread.
A cell that the file already answers is not timed again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ocil.learners import registry
from ocil.paper.cells import Cell
from ocil.paper.published import printed
from ocil.paper.times import STEPS, Times, planned
from ocil.report.runs import read_runs
from ocil.run.folder import Plan
from ocil.settings import to_mapping
from ocil.study.estimate import measure


def main(root: Path) -> None:
    """Add what is missing, cell by cell."""
    file, runs = root / STEPS, read_runs([root])
    for number in printed():
        settings = planned(number)
        if settings is None or Times(runs, root).seconds(Cell((number,))) is not None:
            continue
        plan = Plan(number.method, registry.make_settings(number.method, settings))
        seconds = measure(plan)
        known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
        known.append({"method": number.method, "settings": to_mapping(plan.settings), "steps": 1})
        known[-1]["seconds"] = round(seconds or 0.0, 3)
        file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(f"{number.method} on {number.data}: {seconds:.2f} s a batch", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
