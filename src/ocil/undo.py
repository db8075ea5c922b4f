"""The way back to the state before a call that fails, without a copy of everything at each call.

A copy of the state is made every so many batches, and the batches since then are kept. What is
learned is a function of state and batches, so both together give the state before the call again,
to the bit. States too large to be held twice, and those without trained weights, which no step can
ruin, are not copied: from them no way leads back.
"""

from __future__ import annotations

import copy

import torch

from ocil.nets.foreign import Foreign, offering
from ocil.session import Session, State

EVERY = 200  # batches from one copy to the next: a copy takes longer the more is held, a step not
LARGEST = 256 << 20  # bytes of a state that is copied


class WayBack:
    """Told of every batch that a session learns, it can make the session of before again."""

    def __init__(self) -> None:
        self._copy: State | None = None
        self._batches: list[tuple[torch.Tensor, list[int | str]]] = []
        self._none = False

    def mark(self, session: Session) -> int:
        """Note the state of now; what is returned leads back to it."""
        if self._none:
            return 0
        if self._copy is None or len(self._batches) >= EVERY:
            self._copy, self._batches = None, []
            if any(w.requires_grad for w in session.learner.model.parameters()):
                state = session.state()
                if sum(t.numel() * t.element_size() for t in state.tensors.values()) <= LARGEST:
                    self._copy = _copied(state)
            self._none = self._copy is None  # states only grow
        return len(self._batches)

    def add(self, x: torch.Tensor, labels: list[int | str]) -> None:
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
