"""`ocil merge`: model files that share an encoder become one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ocil.commands.parsing import Positional, say
from ocil.errors import OcilError
from ocil.files import WAIT, write_atomic, writing


@dataclass(frozen=True)
class Merge:
    """Merge model files into the one that saw all their streams.

    They must share an encoder: `ocil learn DATA --model b.ocil --encoder-of a.ocil` makes sure of
    it. Class statistics are added exactly, memories joined by a draw weighted with the counts.
    Nets do not merge: a model with an anchor (otc) answers by its anchor afterwards.
    """

    models: Positional[tuple[Path, ...]]
    """Two model files or more; the first lends the settings."""
    out: Path
    """The model file to make. It CONTAINS TRAINING IMAGES if one of them does."""
    wait: float = WAIT
    """Seconds to wait for another process that is writing it."""

    def __call__(self) -> None:
        from ocil.classifier import load
        from ocil.merging import Merger
        from ocil.run.process import set_threads

        if len(self.models) < 2:
            raise OcilError("Name the models that are to be merged, two or more.")
        set_threads(1)
        with writing(self.out, self.wait):
            if self.out.exists():
                raise OcilError(f"{self.out} exists; choose another name, or delete it.")
            model = load(self.models[0])
            merger = Merger(model._fitted(), str(self.models[0]))
            for file in self.models[1:]:
                merger.add(load(file)._fitted(), str(file))
            model._take(merger.finish())
            write_atomic(self.out, model._blob())
        if model._fitted().session.learner.gradient_steps:
            say("Nets do not merge: the model answers by its anchor, and its net starts anew.")
        count = sum(model.counts_.values())
        say(
            f"Merged {len(self.models)} models: {len(model.classes_)} classes, {count} samples. "
            f"Model: {self.out} (it may contain training images)."
        )
