"""`ocil learn`: teach a model file data of your own, by one process at a time, and stoppable.

What is not finished is noted in the model file: which data (by the fingerprint of their content),
how many samples the model knew before, how many of these it has learned since. The same command
goes on there.
"""

from __future__ import annotations

import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ocil.classifier import Classifier, load
from ocil.commands.items import picture_shape
from ocil.commands.judgement import judgement, progress, steps_within
from ocil.commands.parsing import Positional, parse, say
from ocil.data.dataset import fingerprint
from ocil.data.own import Part, read_own
from ocil.errors import OcilError, Stopped
from ocil.files import WAIT, write_atomic, writing
from ocil.run.process import set_threads
from ocil.run.signals import stop_requests
from ocil.text import plain

CHUNK = 10  # samples from one look at the signals to the next
MAX_UNFINISHED = 20  # data sets whose place is kept; of more the oldest go
SAVE_EVERY = 500  # samples after which the model is saved
FOR_NEW = ("method", "memory", "net", "seed", "updates", "lr", "resize", "encoder_of")
OF_ENCODER = ("method", "net", "resize")


@dataclass(frozen=True)
class LearnOptions:
    """Teach a model file new classes, or more of old ones; it is made if it is not there.

    The samples are learned once, in random order. Stopped, the same command goes on after the last
    learned sample; once it was done, it learns the samples again. The file CONTAINS TRAINING IMAGES
    (its memory).
    """

    data: Positional[Path]
    """Folder with one folder per class, .npz, .parquet, or a Hugging Face data set on disk."""
    model: Path
    """The model file to make or to continue."""
    method: str | None = None
    """For a new model: the method (`ocil methods`); otc unless given."""
    memory: int | None = None
    """For a new model: images that its replay memory holds; 500 unless given."""
    net: str | None = None
    """For a new model: auto, mlp, resnet18, resnet18-global, identity, or hf:FOLDER, a backbone."""
    seed: int | None = None
    """For a new model: decides all draws; 0 unless given."""
    updates: int | None = None
    """For a new model: gradient steps a batch of 10; with few samples a network needs more."""
    lr: float | None = None
    """For a new model: the learning rate."""
    encoder_of: Path | None = None
    """For a new model: one whose settings and finished encoder it takes, to be merged later."""
    resize: int | None = None
    """For a new model: side in pixels to which pictures are scaled; photographs: 64."""
    on: str = "local"
    """Where to learn: local, ray (a cluster on this machine) or ray:ADDRESS; on Ray methods with
    exact sums, in blocks and in any order."""
    workers: int | None = None
    """Cores of a Ray cluster on this machine; all unless given."""
    consolidate: float = 30.0
    """Seconds, at most, in which the net is trained on the memory alone at the end, until the
    samples it never trained on stop improving; 0: not at all."""
    bad_images: Literal["fail", "skip"] = "fail"
    """What a picture that cannot be decoded does."""
    wait: float = WAIT
    """Seconds to wait for another process that is writing the model."""


def learn(words: list[str]) -> None:
    """Continue a model, or start one; the file is written whole or not at all."""
    options = parse(LearnOptions, words, "ocil learn")
    for name in ("wait", "consolidate"):
        if not 0 <= getattr(options, name) < 1e9:
            raise OcilError(f"--{name} is {getattr(options, name):g}; give 0 seconds or more.")
    if not options.model.parent.is_dir():
        raise OcilError(f"There is no folder {options.model.parent} for the model; make it first.")
    if options.on.partition(":")[0] not in ("local", "ray") or options.on.startswith("local:"):
        raise OcilError(f"--on is '{options.on}' but must be local, ray or ray:ADDRESS.")
    set_threads(1)  # the number of threads decides the bits
    with writing(options.model, options.wait):
        if options.on != "local":
            from ocil.commands.learn_ray import learn_on_ray

            return learn_on_ray(options)
        _Lesson(options).run(f"ocil learn {shlex.join(words)}")


class _Lesson:
    """A model, what it is to learn, and how far it has come."""

    def __init__(self, options: LearnOptions) -> None:
        self.file, self.written = options.model, _version(options.model)
        given = given_for_new(options)
        self.model, resize, shape = open_model(options, given)
        self.part = read_own(options.data, resize, options.bad_images, shape)["train"]
        self.content = _content(self.part)
        place = self._unfinished().get(self.content)
        if self.written and given and (place is None or place["given"] != given):
            raise refuse_given(self.file, given)
        for other in (p for key, p in self._unfinished().items() if key != self.content):
            say(
                f"Not finished: {plain(other['name'], 60)}, {other['learned']} of "
                f"{other['samples']} samples; these are other data. Its own command goes on with "
                "it as long as its content is the same."
            )
        if place:
            say(f"Going on after {place['learned']} of {place['samples']} samples.")
        self.place: dict[str, Any] = place or {
            "name": options.data.resolve().name, "samples": len(self.part.labels),
            "known": self._samples(), "learned": 0, "given": given,
        }  # fmt: skip
        self.seconds = options.consolidate
        draw = np.random.default_rng([self.model.seed, self.place["known"]])
        self.order = draw.permutation(len(self.part.labels))

    def _samples(self) -> int:
        """How many the model has been given."""
        learned = sum(self.model._learned.counts.values()) if self.model._learned else 0
        return learned + self.model.pending_

    def _unfinished(self) -> dict[str, dict[str, Any]]:
        return self.model._learned.unfinished if self.model._learned else {}

    def run(self, command: str) -> None:
        """Learn what is left; `command` goes on with it if a signal stops this."""
        before, known = self.place["learned"], 0
        if self.model.__sklearn_is_fitted__():
            known = len(self.model.classes_)
        with stop_requests() as asked:
            self._learn_all(asked)
            done = self.place["learned"]
            if done < len(self.order):
                self._save(finished=False)
                raise Stopped(
                    asked[0],
                    f"Stopped after {done} of {len(self.order)} samples; {self.file} holds them. "
                    f"Go on with `{command}`.",
                )
            self.model.flush()
            gain = self._consolidate()
            self._save(finished=True)
            count = len(self.model.classes_)
            say(
                f"Learned {done - before} samples: {count} classes, {count - known} of them new. "
                f"Model: {self.file} (it contains training images).",
                *([gain] if gain else []),
                *judgement(self.model),
            )

    def _consolidate(self) -> str:
        """Train on the memory; how many steps is decided once, so that a kill changes nothing."""
        if "consolidate" not in self.place:
            self.place["consolidate"] = steps_within(self.model, self.seconds)
            self._save(finished=False)
        if not self.place["consolidate"]:
            return ""
        gain = self.model.consolidate(updates=self.place["consolidate"])
        return (
            f"Trained {gain.updates} steps more on the memory alone: log-loss of samples it never "
            f"trained on {gain.before:.3f} -> {gain.after:.3f}."
        )

    def _learn_all(self, asked: list[int]) -> None:
        """Learn until all is learned or a signal asks to stop; save from time to time."""
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        start = self._samples() - self.place["learned"]
        with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
            line = bar.add_task("learning", total=len(self.order))
            while (at := self.place["learned"]) < len(self.order):
                rows = self.order[at : at + CHUNK]
                labels = [self.part.labels[i] for i in rows]
                try:
                    self.model.partial_fit(self.part.items[rows], labels)
                except KeyboardInterrupt:  # a step is whole; samples after it were not learned
                    asked.append(signal.SIGINT)
                self.place["learned"] = self._samples() - start
                if asked:
                    return
                if at // SAVE_EVERY < self.place["learned"] // SAVE_EVERY:
                    self._save(finished=False)
                    bar.update(line, description=progress(self.model))
                bar.update(line, completed=self.place["learned"])

    def _save(self, finished: bool) -> None:
        """Write the model, with the place in its data while they are not finished."""
        if _version(self.file) != self.written:
            raise OcilError(
                f"Something else has written {self.file} in the meantime; what it wrote was kept. "
                "Run this command again to teach it as well."
            )
        unfinished = {k: v for k, v in self._unfinished().items() if k != self.content}
        if not finished:
            unfinished[self.content] = self.place
        if self.model._learned:
            self.model._learned.unfinished = dict(list(unfinished.items())[-MAX_UNFINISHED:])
        write_atomic(self.file, self.model._blob())
        self.written = _version(self.file)


def given_for_new(options: LearnOptions) -> dict[str, Any]:
    """What was given for a new model, as plain values."""
    given = {k: v for k in FOR_NEW if (v := getattr(options, k)) is not None}
    return given | ({"encoder_of": str(options.encoder_of)} if options.encoder_of else {})


def open_model(options: LearnOptions, given: dict[str, Any]) -> tuple[Classifier, int | None, Any]:
    """The model to teach, and what pictures become: squares of so many pixels, or a shape."""
    if options.model.exists():
        model = load(options.model)
        return model, None, picture_shape(model)
    if options.encoder_of is None:
        settings = {k: v for k, v in given.items() if k != "resize"}
        model = Classifier(**settings)
        return model, options.resize, picture_shape(model)
    if odd := [f"--{name}" for name in OF_ENCODER if name in given]:
        raise OcilError(f"--encoder-of gives the new model {odd[0]} as well; leave it out.")
    source = load(options.encoder_of)
    changes = {k: v for k, v in given.items() if k != "encoder_of"}
    return Classifier.like(source, **changes), None, picture_shape(source)


def refuse_given(file: Path, given: dict[str, Any]) -> OcilError:
    flags = ", ".join(f"--{name}".replace("_", "-") for name in given)
    return OcilError(
        f"{file} exists and keeps its settings; leave out {flags}, or choose another file for a "
        "new model."
    )


def _content(part: Part) -> str:
    """Fingerprint of items and labels in their order."""
    labels = "\0".join(f"{type(label).__name__} {label}" for label in part.labels)
    return fingerprint((part.items, np.frombuffer(labels.encode(), np.uint8)))


def _version(file: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file is replaced; None while there is none."""
    if not file.exists():
        return None
    found = file.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
