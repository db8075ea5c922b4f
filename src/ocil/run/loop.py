"""A run from its first batch to its record: stream -> learn -> evaluate -> record."""

from __future__ import annotations

import copy
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ocil import data
from ocil.data.own import OwnData
from ocil.errors import OcilError, Stopped
from ocil.files import write_atomic
from ocil.run import checkpoint, latentfile, latents, record
from ocil.run.display import Display
from ocil.run.evaluate import KeptFeatures, evaluate
from ocil.run.folder import Plan, RunFolder
from ocil.run.process import check_sound, is_due, set_threads
from ocil.run.signals import stop_requests
from ocil.session import Session
from ocil.stream import BatchIndex, Stream, probe_indices

log = logging.getLogger("ocil")
Listener = Callable[[dict[str, Any]], None]


def start_run(
    plan: Plan,
    out: Path,
    *,
    data_dir: Path | None = None,
    own: OwnData | None = None,
    listeners: Sequence[Listener] = (),
) -> dict[str, Any]:
    """Run a plan in a new folder and return its record; `own` are data of your own."""
    folder = RunFolder(out)
    folder.check_free()
    # What cannot be read or built is said before a folder is made for it.
    run = _Run(folder, plan, _dataset(plan, data_dir, own), listeners)
    with folder.locked():
        if own is not None:
            folder.remember(own)
        folder.create(plan)
        return run.run()


def resume_run(
    out: Path,
    *,
    data_dir: Path | None = None,
    own: OwnData | None = None,
    listeners: Sequence[Listener] = (),
) -> dict[str, Any]:
    """Continue a run from its newest sound checkpoint, or start it if there is none."""
    folder = RunFolder(out)
    plan = folder.plan()
    folder.check_unfinished()
    dataset = _dataset(plan, data_dir, own or folder.own_data())
    with folder.locked():
        folder.check_unfinished()  # another process may have finished it in the meantime
        if own is not None:
            folder.remember(own)  # they have moved
        return _Run(folder, plan, dataset, listeners).run()


def _dataset(plan: Plan, data_dir: Path | None, own: OwnData | None) -> data.Dataset:
    if own is None:
        return data.load(plan.settings.data, data_dir)
    # the folder may have another name by now; its content may not
    if own.dataset.name.rsplit("-", 1)[-1] != plan.settings.data.rsplit("-", 1)[-1]:
        raise OcilError(
            f"{own.path} holds {own.dataset.name}, but the run is of {plan.settings.data}; give "
            "the data it was started with."
        )
    return own.dataset


class _Run:
    """The parts of one run; `run` is the loop."""

    def __init__(
        self, folder: RunFolder, plan: Plan, dataset: data.Dataset, listeners: Sequence[Listener]
    ) -> None:
        self.folder, self.plan, self.settings = folder, plan, plan.settings
        self.dataset, self.listeners = dataset, listeners
        self.images, self.labels = dataset.train_images, dataset.train_labels
        self.stream = Stream(self.labels, self.settings)
        self.test_images, self.test_labels = dataset.test_images, dataset.test_labels
        if self.settings.validate:
            held = self.stream.held_out
            self.test_images, self.test_labels = self.images[held], self.labels[held]
        self.probe = probe_indices(self.test_labels, self.settings.probe)
        self.threads = set_threads(self.settings.threads)
        self.session = Session(plan.method, self.settings, self.images.shape[1:])
        self.learner = self.session.learner
        self.kept = KeptFeatures(len(self.test_labels))
        self.seconds = 0.0
        self.evaluations: list[dict[str, Any]] = []
        self.inside: list[dict[str, Any]] = []  # the learner's diagnostics, task by task

    def run(self) -> dict[str, Any]:
        self._restore()
        learner, session, stream, settings = self.learner, self.session, self.stream, self.settings
        title = f"{self.plan.method} on {settings.data}, seed {settings.seed}"
        starts = {0, *stream.task_ends()}
        with (
            stop_requests() as asked,
            Display(title, stream.n_batches, len(stream.tasks), session.step) as display,
        ):
            for batch in stream.batches(start=session.step):
                if learner.needs_tasks and batch.step in starts:
                    learner.begin_task(batch.task)
                report = self._learn(batch)
                step = session.step
                display.step(step, batch.task, report, step * settings.batch / self.seconds)
                if batch.ends_task or is_due(step, settings.eval_every):
                    check_sound(session, report)
                    display.evaluated(self._evaluate(batch))
                if batch.ends_task:
                    self._diagnose(batch.task)
                if asked or (is_due(step, settings.checkpoint_every) and step < stream.n_batches):
                    check_sound(session, report)
                    self._save()
                    if asked:
                        raise Stopped(asked[0], f"Stopped; go on with `{self.folder.resume}`.")
        return self._finish()

    def _learn(self, batch: BatchIndex) -> dict[str, torch.Tensor]:
        """One batch, and the method's own phase at a task's end: atomic, redone after a kill."""
        began = time.perf_counter()
        x, labels = self.images[batch.indices], self.labels[batch.indices].tolist()
        task = None if self.settings.order == "joint" else batch.task
        try:
            report = self.session.learn(x, labels, task=task, epoch=batch.epoch)
        except Exception:
            check_sound(self.session, {})  # weights that are no numbers break a step anywhere
            raise
        if self.learner.needs_tasks and batch.ends_task:
            own = self.stream.phase_indices(batch.task)
            ids = torch.tensor(self.session.labels.encode(self.labels[own].tolist()))
            self.learner.end_task(batch.task, _tensor(self.images[own]), ids)
        self.seconds += time.perf_counter() - began
        return report

    def _evaluate(self, batch: BatchIndex) -> dict[str, Any]:
        """All read-outs on all images at a task's end, the one that counts on the probe before."""
        step, rows = self.session.step, []
        if is_due(step, self.settings.eval_every):
            rows += self._count("probe", self.probe, [self.learner.readout])
        if batch.ends_task:
            rows += self._count("all", slice(None), list(self.learner.readouts()))
        for row in rows:
            row |= {"step": step, "task": batch.task}
            self._emit({"event": "evaluation", **row})
        self.evaluations += rows
        return next(r for r in reversed(rows) if r["readout"] == self.learner.readout)

    def _count(self, images: str, chosen: Any, readouts: Sequence[str]) -> list[dict[str, Any]]:
        x, y = self.test_images[chosen], self.test_labels[chosen]
        numbers = np.arange(len(self.test_labels))[chosen]
        classes = len(self.dataset.class_names)
        found = evaluate(self.session, x, y, classes, readouts, self.kept, numbers)
        return [row | {"images": images} for row in found]

    def _diagnose(self, task: int) -> None:
        """Ask the learner for numbers about itself, on the probe images of classes seen."""
        labels, known = self.test_labels[self.probe], self.session.labels
        seen = np.isin(labels, known.classes)
        y = torch.tensor(known.encode(labels[seen].tolist()))
        if found := self.learner.diagnose(_tensor(self.test_images[self.probe[seen]]), y):
            row = {"step": self.session.step, "task": task, **found}
            self.inside.append(row)
            self._emit({"event": "inside", **row})

    def _emit(self, event: dict[str, Any]) -> None:
        """Write an event; a listener that breaks is reported and never stops a run."""
        self.folder.append(event)
        for listener in self.listeners:
            try:
                listener(copy.deepcopy(event))  # whatever it does to it
            except Exception:
                log.warning("A listener failed on event '%s'.", event["event"], exc_info=True)

    def _save(self) -> None:
        self.folder.sync_events()
        progress = {"seconds": self.seconds, "threads": self.threads, "of": self._identity()}
        progress["told"] = checkpoint.events_sha256(self.evaluations + self.inside)
        checkpoint.save(self.folder.checkpoints, self.session.state(), progress)
        self._emit({"event": "checkpoint", "step": self.session.step})

    def _restore(self) -> None:
        """Take up the newest sound checkpoint and the evaluations made before it."""
        found = checkpoint.latest(self.folder.checkpoints)
        if found is not None:
            if not found.progress["of"].items() <= self._identity().items():
                raise OcilError(
                    f"{self.folder.checkpoints} was made with other settings or other data; use "
                    "the data it was made with, or start a new run."
                )
            # The number of threads decides the bits: use what the run began with.
            self.threads = set_threads(found.progress["threads"])
            self.session.load(found.state)
            self.seconds = found.progress["seconds"]
            fitting = (self.dataset, self.stream, list(self.learner.readouts()))
            self.evaluations, self.inside = checkpoint.events_before(found, self.folder, *fitting)
        start = {"event": "resume" if found else "start", "step": self.session.step}
        self._emit(start | {"pid": os.getpid(), "steps": self.stream.n_batches})

    def _identity(self) -> dict[str, str]:
        """What a checkpoint belongs to: loaded elsewhere it would spoil a result unnoticed."""
        return {"job": self.plan.job, "data": self.dataset.fingerprint}

    def _finish(self) -> dict[str, Any]:
        learner, stream = self.learner, self.stream
        content = record.describe(self.plan, self.folder.own_data()) | {
            "data_fingerprint": self.dataset.fingerprint,
            "stream_sha256": stream.sha256(),
            "class_names": list(self.dataset.class_names),
            "tasks": stream.tasks,
            "readout": learner.readout,
            "readouts": list(learner.readouts()),
            **record.results(self.evaluations, stream.tasks, learner.readout),
            "steps": stream.n_batches,
            "gradient_steps_per_batch": learner.gradient_steps,
            "threads": self.threads,
            "seconds": round(self.seconds, 3),
            "images_per_second": round(stream.images / self.seconds, 1),
            "backbone_images_per_step": learner.backbone_images / stream.n_batches,
            "bytes_held": learner.nbytes,
            "peak_memory_mb": record.peak_memory_mb(),
            "state_sha256": self.session.state().sha256(),
        }
        content |= {"inside": self.inside} if self.inside else {}
        content |= {"bytes_kept_to_evaluate": kept} if (kept := self.kept.nbytes) else {}
        self._save()
        if self.settings.latents:  # before the record: a finished run has both
            self._keep_latents()
        record.write(self.folder.record, content)
        self._emit({"event": "end", "step": self.session.step})
        return content

    def _keep_latents(self) -> None:
        of = {"method": self.plan.method, "data": self.settings.data, "job": self.plan.job}
        of |= {"readout": self.learner.readout, "class_names": list(self.dataset.class_names)}
        try:
            found = latents.collect(self.session, self.test_images, self.test_labels, of)
        except Exception:  # a learner that shows nothing: the result matters more than pictures
            log.warning("The latents could not be collected; the record is whole.", exc_info=True)
            return
        write_atomic(self.folder.latents, latentfile.dump(found))


def _tensor(images: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(images))
