"""`ocil learn --on ray`: blocks of samples as tasks of a Ray cluster, their sums reduced in a tree.

A task reads, encodes and counts a block; another adds eight results. Both are functions of what
they are given, so Ray repeats what is lost with a worker or node, and nothing is counted twice. The
model is written once, in the end.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ocil import modelfile
from ocil.blocks import Tally, Work, absorb, check_countable, count_first, plan_work, tally
from ocil.classifier import Classifier
from ocil.commands.learn import LearnOptions, given_for_new, open_model, refuse_given
from ocil.commands.parsing import say
from ocil.data.pieces import Piece, Pieces, Reading, find_pieces
from ocil.errors import OcilError, Stopped, brief
from ocil.files import write_atomic
from ocil.learners.encoder import STAGES
from ocil.learners.fixed import FixedLearner
from ocil.merging import encoder_of
from ocil.modelfile import Learned
from ocil.run.process import set_threads
from ocil.run.signals import stop_requests
from ocil.samples import Form
from ocil.study.ray import connect

BLOCK = 4000  # samples of a task, at most
FAN = 8  # results that are added together
RETRIES = 20  # of a task whose worker or node is lost


def learn_on_ray(options: LearnOptions) -> None:
    """Learn all samples once; the model is what one machine would have made of them."""
    given = given_for_new(options)
    if options.model.exists() and given:
        raise refuse_given(options.model, given)
    model, resize, shape = open_model(options, given)
    if model._learned:
        check_countable(model._learned.session.learner)
        if model._learned.unfinished:
            raise OcilError(f"{options.model} has data that are not finished; finish them first.")
        model.flush()
    how = Reading(resize, options.bad_images, shape)
    pieces = find_pieces(options.data, how)
    before = len(model.classes_) if model.__sklearn_is_fitted__() else 0
    began = time.monotonic()
    ray = connect(options.on.partition(":")[2], options.workers)
    try:
        start = time.monotonic() - began
        trained = _Lesson(model, pieces, how, ray).run(options.data)
    finally:
        ray.shutdown()
    write_atomic(options.model, model._blob())
    seconds = time.monotonic() - began - start
    if not trained:
        say("The net was not trained: the model answers by its anchor.")
    count = len(model.classes_)
    say(
        f"Learned {pieces.total} samples in {seconds:.1f} s ({start:.1f} s to start Ray): {count} "
        f"classes, {count - before} of them new. Model: {options.model} (it may contain training "
        "images)."
    )


class _Lesson:
    """A model, the pieces of its data, and Ray."""

    def __init__(self, model: Classifier, pieces: Pieces, how: Reading, ray: Any) -> None:
        self.model, self.pieces, self.how, self.ray = model, pieces, how, ray
        known = sum(model.counts_.values()) if model.__sklearn_is_fitted__() else 0
        self.order = np.random.default_rng([model.seed, known]).permutation(pieces.total)
        self.read = ray.remote(max_retries=RETRIES)(_read)
        self.count = ray.remote(max_retries=RETRIES)(_count)
        self.add = ray.remote(max_retries=RETRIES)(_add)

    def run(self, data: Path) -> bool:
        """Learn; False where there is a net that was not trained."""
        with stop_requests() as asked:
            now, first = self._begin()
            self.model._learned = now
            work = plan_work(now, self.pieces.total - first)
            shared = self.ray.put((modelfile.dump(*modelfile.content_of(now, memory=False)), work))
            cut = self.pieces.cut(self.order, first, self.pieces.total, self._size(first))
            done = iter(self._tasks(cut, shared, work.plan.start - first, first, asked))
            found = _reduced(self.ray, self.add, done)
            if asked:
                raise Stopped(
                    asked[0], "Stopped; nothing was learned. The same command starts anew."
                )
            if found is not None:
                total: Tally = self._get(found)
                absorb(now, work, total)
            fixed = isinstance(now.session.learner, FixedLearner)
            if not fixed:
                self.model._given["readout"] = "anchor"
            return fixed

    def _begin(self) -> tuple[Learned, int]:
        """The model with a finished encoder, and how many of the first samples made it."""
        now = self.model._learned
        encoder = encoder_of(now.session.learner) if now else None
        if now and encoder and encoder.finished:
            return now, 0
        seen = encoder.first.seen if encoder else 0
        first = min(self.pieces.total, STAGES[-1] - seen)
        if self.model._encoder is not None:
            first = 1  # what items are like
        size = self._size(0)
        refs = [self.read.remote(p, self.how) for p in self.pieces.cut(self.order, 0, first, size)]
        parts = [self._get(ref) for ref in refs]
        x = np.concatenate([part.items for part, _ in parts])
        labels = [label for part, _ in parts for label in part.labels]
        rows = np.argsort(np.concatenate([at for _, at in parts]), kind="stable")
        if now is None:
            form = Form.of(x)
            now = Learned(self.model._begin(form.shape), form, self.model.channels)
        check_countable(now.session.learner)
        count_first(now, torch.from_numpy(x[rows]), [labels[i] for i in rows])
        if len(now.form.shape) == 3 and now.form.dtype == "uint8":
            self.how = self.how._replace(shape=now.form.shape, resize=None)  # pyright: ignore
        return now, first

    def _size(self, first: int) -> int:
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        return max(100, min(BLOCK, -(-(self.pieces.total - first) // (4 * cores))))

    def _tasks(
        self, cut: Iterator[Piece], shared: Any, by: int, first: int, asked: list[int]
    ) -> Iterator[Any]:
        """Results of blocks as they come; as many are under way as keep all cores at work."""
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        left, total = {}, self.pieces.total
        with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
            line = bar.add_task("learning", total=total, completed=first)
            while not asked:
                room = 2 * int(self.ray.cluster_resources().get("CPU", 1))
                while len(left) < room and (piece := next(cut, None)) is not None:
                    left[self.count.remote(piece, self.how, shared, by)] = len(piece.at)
                if not left:
                    return
                for ref in self.ray.wait(list(left), timeout=0.5)[0]:
                    bar.advance(line, left.pop(ref))
                    yield ref

    def _get(self, ref: Any) -> Any:
        try:
            return self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, OcilError):
                raise OcilError(str(error.cause)) from error
            raise OcilError(f"A Ray worker failed: {brief(error.cause or error)}.") from error
        except self.ray.exceptions.RayError as error:
            raise OcilError(
                f"Too many Ray workers were lost ({brief(error)}); nothing was learned. Run the "
                "command again."
            ) from error


def _reduced(ray: Any, add: Any, results: Iterator[Any]) -> Any:
    """The sum of results, eight at a time; None of none."""
    levels: list[list[Any]] = []
    for result in results:
        for level in range(99):
            if level == len(levels):
                levels.append([])
            levels[level].append(result)
            if len(levels[level]) < FAN:
                break
            result = add.remote(*levels[level])
            levels[level] = []
    rest = [ref for level in levels for ref in level]
    return add.remote(*rest) if rest else None


# -------------------------------------------------------------------- on the workers


def _read(piece: Piece, how: Reading) -> Any:
    set_threads(1)
    return piece.read(how)


def _count(piece: Piece, how: Reading, shared: tuple[bytes, Work], by: int) -> Tally:
    set_threads(1)
    blob, work = shared
    part, at = piece.read(how)
    return tally(_model(bytes(blob)), work, part, at + by)


@functools.lru_cache(maxsize=1)
def _model(blob: bytes) -> Learned:
    return modelfile.restore(modelfile.parse(blob), None)


def _add(*results: Tally) -> Tally:
    set_threads(1)
    return functools.reduce(Tally.add, results)
