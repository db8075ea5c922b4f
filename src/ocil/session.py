"""A learner together with everything that must survive a kill: labels, generators, step count."""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ocil import rng
from ocil.errors import OcilError, refusing
from ocil.labels import Label, LabelMap
from ocil.learners import registry, taking_back
from ocil.learners.learner import Learner
from ocil.learners.parts import strip_prefix
from ocil.nets.foreign import Foreign, offering
from ocil.settings import Settings
from ocil.stream import Batch

# Tensors that only a forged state has infinite numbers in.
_FINITE_PARTS = ("model", "average", "teacher", "optimizer", "pooled", "anchor")
_FINITE = tuple(f"learner.{part}." for part in _FINITE_PARTS)


class State(NamedTuple):
    """All that later behaviour depends on: tensors by name, and plain JSON values."""

    tensors: dict[str, torch.Tensor]
    scalars: dict[str, Any]

    def sha256(self) -> str:
        """Hash of sorted (name, dtype, shape, bytes) of every tensor and the scalars as JSON."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self.tensors.items()):
            value = tensor.detach().cpu().contiguous()
            digest.update(f"{name}|{value.dtype}|{tuple(value.shape)}|".encode())
            digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
        digest.update(json.dumps(self.scalars, sort_keys=True).encode())
        return digest.hexdigest()


class Session:
    """Feeds labelled batches to a method and maps labels to class ids in order of arrival.

    >>> from ocil.settings import Settings
    >>> session = Session("er", registry.get("er").settings_type(), shape=(1, 8, 8))
    >>> x = np.zeros((3, 1, 8, 8), np.uint8)
    >>> report = session.learn(x, ["cat", "dog", "cat"])
    >>> session.labels.classes, session.step
    (['cat', 'dog'], 1)
    """

    def __init__(self, method: str | type[Learner], settings: Settings, shape: Sequence[int]):
        kind = registry.get(method) if isinstance(method, str) else method
        self.method, self.settings, self.shape = kind.method, settings, tuple(shape)
        check_device(settings.device)
        survive_forks()
        self.labels = LabelMap()
        self.generators = rng.generators(settings.seed)
        self.learner = kind(settings, shape, self.generators)
        self.step = 0

    def learn(
        self,
        x: np.ndarray | torch.Tensor,
        labels: Sequence[Label],
        *,
        task: int | None = None,
        epoch: int = 0,
    ) -> dict[str, torch.Tensor]:
        """Learn one batch x (n, ...) with its labels; returns detached 0-d tensors."""
        if isinstance(x, np.ndarray) and not x.flags.writeable:
            x = x.copy()  # a slice of a memory map; torch wants memory it could write to
        x = torch.as_tensor(x)
        self._check(x, labels)
        y = torch.tensor(self.labels.encode(labels), dtype=torch.int64)
        batch = Batch(x, y, self.step, task, epoch, self.settings.epochs)
        report = self.learner.learn(batch)
        self.step += 1
        return report

    def _check(self, x: torch.Tensor, labels: Sequence[Label]) -> None:
        if tuple(x.shape[1:]) != self.shape or not len(x):
            raise OcilError(
                f"A batch has shape {tuple(x.shape)}; give one or more items of {self.shape}."
            )
        if len(labels) != len(x):
            raise OcilError(f"A batch has {len(x)} items but {len(labels)} labels; give one each.")
        if x.is_floating_point() and not bool(x.isfinite().all()):
            raise OcilError("A batch holds NaN or infinite values; take such items out.")

    def forget(self, label: Label) -> None:
        """Take a class out; its label is free."""
        taking_back.forget(self.learner, self.labels.forget(label))

    def remove(self, x: torch.Tensor, labels: Sequence[Label]) -> None:
        """Take samples x (n, ...) back that were learned with these labels."""
        taking_back.remove(self.learner, x, torch.tensor(self.labels.encode(labels)))

    def relabel(self, x: torch.Tensor, labels: Sequence[Label], new: Sequence[Label]) -> None:
        """Samples that were learned with these labels have others."""
        old = torch.tensor(self.labels.encode(labels))
        taking_back.relabel(self.learner, x, old, torch.tensor(self.labels.encode(new)))

    def state(self, samples: bool = True) -> State:
        """`samples=False` leaves out what parts hold of the stream: memories are empty."""
        tensors = {f"learner.{k}": v for k, v in self.learner.state_dict(samples).items()}
        for purpose, generator in self.generators.items():
            tensors[f"generator.{purpose}"] = generator.get_state()
        scalars = {"method": self.method, "labels": self.labels.classes, "step": self.step}
        return State(tensors, scalars)

    def load(self, state: State) -> None:
        """Take up a state; one that does not fit this method and its settings is refused."""
        sentence = f"The saved state does not fit {self.method} with its settings"
        with refusing(sentence, "delete it to use the one before"):
            self.take_up(state)

    def take_up(self, state: State) -> None:
        """The same, with errors of any kind for a state that does not fit."""
        method, labels, step = (state.scalars[k] for k in ("method", "labels", "step"))
        if method != self.method or type(step) is not int or step < 0:
            raise ValueError("it was made by another method or at no step")
        self.labels, self.step = LabelMap(), step
        if self.labels.encode(labels) != list(range(len(labels))):
            raise ValueError("a label occurs twice")
        self.learner.load_state_dict(strip_prefix(state.tensors, "learner."))
        for purpose, saved in strip_prefix(state.tensors, "generator.").items():
            self.generators[purpose].set_state(saved)
        if self.learner.classes != len(labels):
            raise ValueError(f"it has {self.learner.classes} classes and {len(labels)} labels")
        for name, part in self.learner.parts.items():
            x = getattr(part, "columns", {}).get("x") if part.holds_samples else None
            if x is not None and tuple(x.shape[1:]) != self.shape:
                raise ValueError(f"{name} holds items of {tuple(x.shape[1:])}")
        taken = self.state().tensors  # all as they were given, in type, shape and name
        for name, value in state.tensors.items():
            if name.startswith(_FINITE) and not bool(value.isfinite().all()):
                raise ValueError(f"{name} holds NaN or infinite numbers")
            mine = taken.get(name)
            same = mine is not None and mine.shape == value.shape
            if mine is None or not same or (mine.dtype != value.dtype and value.numel()):
                found = f"{tuple(value.shape)} of {value.dtype}"
                raise ValueError(f"{name} is {found}, which is not what a state of this kind has")


def check_device(name: str) -> None:
    """Say in a sentence that a device is not there, before anything is built on it."""
    there = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", *there):
        raise OcilError(f"Unknown device '{name}'; choose cpu, cuda or mps.")
    if kind != "cpu" and not there[kind]():
        raise OcilError(f"Device '{name}' is not available on this machine; use --device cpu.")


@functools.cache
def survive_forks() -> None:
    """Let forked children compute with one thread: the others of a pool do not live on in them."""
    if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


EVERY = 200  # batches from one copy to the next: a copy takes longer the more is held, a step not
MAX_COPIED = 256 << 20  # bytes of a state that is copied


class WayBack:
    """The way back to the state before a call that fails, without a copy at each call.

    A copy of the state is made every so many batches, and the batches since then are kept. What is
    learned is a function of state and batches, so both together give the state before the call
    again, to the bit. States too large to be held twice, and those without trained weights, which
    no step can ruin, are not copied: from them no way leads back.
    """

    def __init__(self) -> None:
        self._copy: State | None = None
        self._batches: list[tuple[torch.Tensor, list[Label]]] = []
        self._none = False

    def mark(self, session: Session) -> int:
        """Note the state of now; what is returned leads back to it."""
        if self._none:
            return 0
        if self._copy is None or len(self._batches) >= EVERY:
            self._copy, self._batches = None, []
            if any(w.requires_grad for w in session.learner.model.parameters()):
                state = session.state()
                if sum(t.numel() * t.element_size() for t in state.tensors.values()) <= MAX_COPIED:
                    self._copy = _copied(state)
            self._none = self._copy is None  # states only grow
        return len(self._batches)

    def add(self, x: torch.Tensor, labels: list[Label]) -> None:
        if self._copy is not None:
            self._batches.append((x, labels))

    def done(self) -> None:
        """A call has succeeded; the many samples of a long one are not held on to."""
        if len(self._batches) > EVERY:
            self._copy, self._batches = None, []

    def back(self, failed: Session, mark: int) -> Session | None:
        """The session as it was at a mark, if a way leads there."""
        if self._copy is None:
            return None
        net = failed.learner.model.net
        module = copy.deepcopy(net.module) if isinstance(net, Foreign) else None
        with offering(module):
            session = Session(failed.method, failed.settings, failed.shape)
        session.load(_copied(self._copy))  # what is loaded will be changed
        del self._batches[mark:]
        for x, labels in self._batches:
            session.learn(x, labels)
        return session


def _copied(state: State) -> State:
    tensors = {name: tensor.detach().clone() for name, tensor in state.tensors.items()}
    return State(tensors, copy.deepcopy(state.scalars))
