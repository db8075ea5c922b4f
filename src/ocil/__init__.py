"""ocil: online class-incremental learning.

Public names load on first use, so that `import ocil`, `ocil --help`, `ocil show` and
`ocil report` do not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ocil.errors import OcilError
from ocil.version import __version__

if TYPE_CHECKING:
    from ocil.classifier import Classifier, load
    from ocil.data import load as load_data
    from ocil.learners.learner import Learner
    from ocil.learners.replay import ReplayLearner
    from ocil.run.loop import resume_run, start_run
    from ocil.session import Session

_WHERE = {
    "Classifier": ("ocil.classifier", "Classifier"),
    "load": ("ocil.classifier", "load"),
    "load_data": ("ocil.data", "load"),
    "Learner": ("ocil.learners.learner", "Learner"),
    "ReplayLearner": ("ocil.learners.replay", "ReplayLearner"),
    "Session": ("ocil.session", "Session"),
    "resume_run": ("ocil.run.loop", "resume_run"),
    "start_run": ("ocil.run.loop", "start_run"),
}

__all__ = [
    "Classifier",
    "Learner",
    "OcilError",
    "ReplayLearner",
    "Session",
    "__version__",
    "load",
    "load_data",
    "resume_run",
    "start_run",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'ocil' has no attribute '{name}'")
    module, attribute = _WHERE[name]
    return getattr(importlib.import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
