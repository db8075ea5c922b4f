"""How often one batch leads from file to file: changes of file during one `Session.learn`.

    python bench/file_changes.py                             # this tree
    PYTHONPATH=OTHER/src python bench/file_changes.py        # another one

Counted is every call of a function of ocil that follows a call in another file of it. The methods
run with the settings of MNIST's preset, one update a batch, on pictures of digits, until the memory
is filled and the classes have components; the batch looked at is an ordinary one.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import ocil
from ocil.learners import registry
from ocil.session import Session

PACKAGE = str(Path(ocil.__file__).parent)
BATCH = 20  # the one that is looked at


def files_called(method: str) -> list[str]:
    """The file of every call of a function during the batch, in order."""
    values, _ = registry.resolve(method, {"data": "mnist", "memory": 100})
    once = {key: 1 for key in ("steps", "updates") if key in values}  # as it was, as it is
    settings = registry.make_settings(method, values | once)
    x, y = load_digits(return_X_y=True)
    order = np.argsort(y, kind="stable")
    x, y = (15 * x[order]).astype(np.uint8).reshape(-1, 1, 8, 8), y[order].tolist()
    session, called = Session(method, settings, (1, 8, 8)), []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            called.append(str(Path(code.co_filename).relative_to(PACKAGE)))

    for step in range(BATCH + 1):
        part = slice(step * settings.batch, (step + 1) * settings.batch)
        sys.setprofile(note if step == BATCH else None)
        session.learn(x[part], y[part])
    sys.setprofile(None)
    return called


if __name__ == "__main__":
    for method in sys.argv[1:] or ["otc", "er"]:
        found = files_called(method)
        entered = [b for a, b in pairwise(found) if a != b]
        print(f"{method}: {len(entered)} changes of file, {len(set(found))} files.")
        for name, count in Counter(entered).most_common():
            print(f"  {count:4d}  {name}")
