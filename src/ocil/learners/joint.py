"""Joint: ER with the same memory and steps on one shuffled pass over all classes, the ceiling.

It shows what the same budget reaches when the order of the stream does no harm; since all classes
arrive together there is nothing to forget, and forgetting is not defined.
"""

from dataclasses import dataclass
from typing import Literal

from ocil.learners.er import PRESETS, Er, ErSettings


@dataclass(frozen=True)
class JointSettings(ErSettings):
    order: Literal["split", "joint"] = "joint"
    """One shuffled pass over all classes."""


class Joint(Er):
    method = "joint"
    title = "ER on a shuffled stream of all classes (ceiling)"
    paper, year = "", None
    settings_type = JointSettings
    presets = PRESETS
