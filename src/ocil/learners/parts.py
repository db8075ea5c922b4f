"""Parts: everything of a learner that has state, saved and loaded by flat names."""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from ocil.learners.model import Model, frozen_copy
from ocil.rows import without

State = Mapping[str, Tensor]


class Part(Protocol):
    """What the base of all learners saves, loads and counts."""

    holds_samples: ClassVar[bool]  # items of the stream

    @property
    def nbytes(self) -> int: ...

    def state_dict(self, samples: bool = True) -> State:
        """`samples=False`: the state without what it holds of the stream."""
        ...

    def load_state_dict(self, state: State, classes: int) -> None:
        """Take up a state that knows `classes` classes; one that is not sound is a ValueError."""

    def forget(self, label: int) -> None:
        """Take out what is held of class `label`; the ids above it move down by one."""


class Parts(dict[str, Part]):
    """Parts by the first word of their names in the state; one without a word has its own names."""

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        return {
            f"{name}.{key}" if name else key: value
            for name, part in self.items()
            for key, value in part.state_dict(samples).items()
        }

    def load_state_dict(self, state: State, classes: int) -> None:
        for name, part in self.items():
            part.load_state_dict(strip_prefix(state, f"{name}." if name else ""), classes)

    def forget(self, label: int) -> None:
        for part in self.values():
            part.forget(label)


class Values:
    """A part made of attributes: numbers, lists of numbers, tensors.

    A subclass names them in `saved`, and those with a row for each class in `by_class` as well; its
    `check` refuses a state that does not fit.
    """

    holds_samples: ClassVar[bool] = False
    saved: ClassVar[tuple[str, ...]]
    by_class: ClassVar[tuple[str, ...]] = ()

    @property
    def nbytes(self) -> int:
        return count_bytes(v for v in vars(self).values() if isinstance(v, Tensor))

    def state_dict(self, samples: bool = True) -> State:
        return {name: torch.as_tensor(getattr(self, name)) for name in self.saved}

    def load_state_dict(self, state: State, classes: int) -> None:
        for name in self.saved:
            now, value = getattr(self, name), state[name]
            if isinstance(now, Tensor) and now.dtype != value.dtype:
                raise ValueError(f"{name} holds {value.dtype}, not {now.dtype}")
            tensor = isinstance(now, Tensor)
            setattr(self, name, value.to(now.device, copy=True) if tensor else value.tolist())
        self.check(classes)

    def forget(self, label: int) -> None:
        for name in self.by_class:
            rows = getattr(self, name)
            lists = isinstance(rows, list)
            setattr(self, name, rows[:label] + rows[label + 1 :] if lists else without(rows, label))

    def check(self, classes: int) -> None:
        """Raise a ValueError where the values do not fit this many classes."""


class Weights:
    """A network, with heads that have a row for each class if it is a `Model`."""

    holds_samples: ClassVar[bool] = False

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    @property
    def nbytes(self) -> int:
        return count_bytes(self.model.state_dict().values())

    def state_dict(self, samples: bool = True) -> State:
        return self.model.state_dict()

    def load_state_dict(self, state: State, classes: int) -> None:
        self.model.load_state_dict(state)
        heads = self.model.heads if isinstance(self.model, Model) else ()
        if any(head.classes != classes for head in heads):
            raise ValueError(f"the head does not have one row for each of {classes} classes")

    def forget(self, label: int) -> None:
        for head in self.model.heads if isinstance(self.model, Model) else ():
            head.forget(label)


class Teacher:
    """Earlier weights of a model, frozen and in eval mode; none until they are kept."""

    holds_samples: ClassVar[bool] = False

    def __init__(self, live: Model) -> None:
        self.live = live
        self.model: Model | None = None

    def keep(self) -> None:
        self.model = frozen_copy(self.live)

    @property
    def nbytes(self) -> int:
        return count_bytes(self.state_dict().values())

    def state_dict(self, samples: bool = True) -> State:
        return self.model.state_dict() if self.model else {}

    def load_state_dict(self, state: State, classes: int) -> None:
        self.model = frozen_copy(self.live) if state else None
        if self.model:
            self.model.load_state_dict(state)
            rows = {head.classes for head in self.model.heads}
            if len(rows) > 1 or any(count > classes for count in rows):
                raise ValueError(f"the teacher knows other classes than the {classes} seen")

    def forget(self, label: int) -> None:
        for head in self.model.heads if self.model else ():
            head.forget(label)


class OptimizerState:
    """Moments and step counts as NUMBER.NAME, numbered as the parameters are."""

    holds_samples: ClassVar[bool] = False
    kinds = (  # what the optimisers that are used here remember of a parameter
        (torch.optim.Adam | torch.optim.AdamW, {"step", "exp_avg", "exp_avg_sq"}),
        (torch.optim.SGD, {"momentum_buffer"}),
    )

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    @property
    def nbytes(self) -> int:
        return count_bytes(self.state_dict().values())

    def state_dict(self, samples: bool = True) -> State:
        return {
            f"{i}.{name}": torch.as_tensor(value)
            for i, p in enumerate(self.parameters)
            for name, value in self.optimizer.state.get(p, {}).items()
        }

    def load_state_dict(self, state: State, classes: int) -> None:
        """The parameters must have their shapes already."""
        parameters = self.parameters
        known = set(map(str, range(len(parameters))))
        if unknown := sorted({name.split(".")[0] for name in state} - known):
            raise ValueError(f"the optimiser has no parameter {unknown[0]}")
        for i, p in enumerate(parameters):
            if saved := strip_prefix(state, f"{i}."):
                self._check(p, saved)
                # The fused step reads moments in the layout of their parameter (channels last).
                self.optimizer.state[p] = {
                    name: torch.empty_like(p).copy_(value)
                    if value.shape == p.shape
                    else value.to(p.device, copy=True)
                    for name, value in saved.items()
                }

    def forget(self, label: int) -> None:
        """The parameters must have lost their rows already."""
        for p in self.parameters:
            state = self.optimizer.state.get(p, {})
            for name, value in state.items():
                if value.dim() and value.shape != p.shape:
                    state[name] = without(value, label)

    def _check(self, p: Tensor, saved: State) -> None:
        """Refuse what the optimiser's next step would stumble over."""
        names = next((n for kind, n in self.kinds if isinstance(self.optimizer, kind)), set(saved))
        if set(saved) != names:
            raise ValueError(f"the optimiser's state has {sorted(saved)}, not {sorted(names)}")
        for name, value in saved.items():
            if value.shape != (torch.Size() if name == "step" else p.shape):
                raise ValueError(f"{name} of the optimiser does not have its parameter's shape")
            if value.dtype != (torch.float32 if name == "step" else p.dtype):
                raise ValueError(f"{name} of the optimiser holds {value.dtype}")


def strip_prefix(state: State, prefix: str) -> dict[str, Tensor]:
    """The entries whose name starts with the prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def count_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
