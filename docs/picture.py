"""Draw the README's picture from the records of a study: `python docs/picture.py DIR FILE.png`."""

from __future__ import annotations

import sys
from pathlib import Path

from ocil.report import figures, lines
from ocil.report.groups import group
from ocil.run.reading import find_records

folder, target = Path(sys.argv[1]), Path(sys.argv[2])
groups = group([record for _, record in find_records(folder)])
curves = [lines.through_tasks(g, g.readout, g.method) for g in groups]
figures.save(figures.curve_figure(curves, size=(6.0, 3.6)), target)
