"""Fine-tuning: cross-entropy on the stream alone, the floor. It forgets what it no longer sees."""

from dataclasses import dataclass

from ocil.errors import OcilError
from ocil.learners.er import PRESETS, Er, ErSettings


@dataclass(frozen=True)
class FinetuneSettings(ErSettings):
    memory: int | None = None
    """Fine-tuning keeps no memory."""
    replay: int = 0
    """Fine-tuning replays nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is not None:
            raise OcilError(f"finetune keeps no memory, but memory is {self.memory}; leave it out.")


class Finetune(Er):
    """ER without a memory: the same step on the stream batch alone."""

    method = "finetune"
    title = "Fine-tuning without memory (floor)"
    paper, year = "", None
    settings_type = FinetuneSettings
    presets = PRESETS
