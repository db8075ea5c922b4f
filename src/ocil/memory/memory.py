"""The replay memory: one tensor store of images, labels and named columns."""

import bisect
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from ocil.memory import policies
from ocil.memory.matching import find


class Memory:
    """At most `capacity` images with their class ids and the columns a learner adds.

    Images are kept as they arrive (uint8 or float32), never augmented. `members[c]` lists the
    slots of class c and `index_in_class[slot]` the position in that list, so that entering,
    leaving and drawing cost the same at every size.

    >>> memory = Memory(capacity=2)
    >>> x, y = torch.zeros(3, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 0])
    >>> memory.write([0, 1, -1], x, y)
    >>> len(memory), memory.members
    (2, [[0], [1]])
    """

    holds_samples: ClassVar[bool] = True

    def __init__(self, capacity: int, device: torch.device | str = "cpu") -> None:
        self.capacity = capacity
        self.device = torch.device(device)
        self.seen = 0  # items offered so far
        self.columns: dict[str, Tensor] = {}  # each (capacity, ...), filled to len(self)
        self.labels: list[int] = []  # class id of each filled slot
        self.members: list[list[int]] = []
        self.index_in_class: list[int] = []
        self.filled: list[int] = []  # classes that have members, ascending

    def __len__(self) -> int:
        return len(self.labels)

    def reservoir(
        self, x: Tensor, y: Tensor, generator: torch.Generator, **columns: Tensor
    ) -> None:
        """Offer a batch: every image of the stream so far ends up kept with equal probability."""
        if not self.capacity:
            return
        slots = self.reservoir_slots(len(y), generator)
        self.seen += len(y)
        self.write(slots, x, y, **columns)

    def reservoir_slots(self, items: int, generator: torch.Generator) -> list[int]:
        """Slots for `items` new images by a reservoir, free ones first; -1 is none."""
        return policies.reservoir(self.seen, self.capacity, items, generator, len(self))

    def draw(
        self, wanted: int, generator: torch.Generator, how: str = "uniform"
    ) -> dict[str, Tensor]:
        """`wanted` different entries (all if there are fewer), with every column."""
        return self.read(self.choose(wanted, generator, how))

    def choose(self, wanted: int, generator: torch.Generator, how: str = "uniform") -> list[int]:
        """The slots of such a draw."""
        if how == "balanced":
            return policies.balanced(_Filled(self), wanted, generator)
        if how == "classes":
            return policies.of_random_classes(_Filled(self), wanted, generator)
        return policies.uniform(len(self), wanted, generator)

    def read(self, slots: Sequence[int]) -> dict[str, Tensor]:
        index = torch.tensor(slots, dtype=torch.int64, device=self.device)
        return {name: column.index_select(0, index) for name, column in self.columns.items()}

    def joined(self, x: Tensor, y: Tensor, slots: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Images x (n, ...) and classes y (n,), followed by those of some slots."""
        x, y = x.to(self.device), y.to(self.device)
        if not slots:
            return x, y
        held = self.read(slots)
        return torch.cat([x, held["x"]]), torch.cat([y, held["y"]])

    def write(self, slots: Sequence[int], x: Tensor, y: Tensor, **columns: Tensor) -> None:
        """Put item i of the batch into slots[i]; -1 skips it; of two for one slot the last stays.

        New slots must follow on from len(memory) without a gap, in any order of the items.
        """
        source = {slot: item for item, slot in enumerate(slots) if slot >= 0}
        if not source:
            return
        classes = y.tolist()
        filled = len(self)
        new = sorted(slot for slot in source if slot >= filled)
        for slot in new + [slot for slot in source if slot < filled]:
            self._enter(slot, classes[source[slot]])
        target = torch.tensor(list(source), device=self.device)
        items = torch.tensor(list(source.values()), device=x.device)
        for name, value in {"x": x, "y": y, **columns}.items():
            if name not in self.columns:
                shape = (self.capacity, *value.shape[1:])
                self.columns[name] = torch.zeros(shape, dtype=value.dtype, device=self.device)
            self.columns[name][target] = value[items].to(self.device)

    def _enter(self, slot: int, label: int) -> None:
        """Keep the class lists: O(1) by moving the last of the old class into the gap."""
        if slot < len(self.labels):
            old = self.members[self.labels[slot]]
            gap, last = self.index_in_class[slot], old.pop()
            if last != slot:
                old[gap], self.index_in_class[last] = last, gap
            if not old:
                del self.filled[bisect.bisect_left(self.filled, self.labels[slot])]
        else:
            self.labels.append(label)
            self.index_in_class.append(0)
        while len(self.members) <= label:
            self.members.append([])
        if not self.members[label]:
            bisect.insort(self.filled, label)
        self.labels[slot] = label
        self.index_in_class[slot] = len(self.members[label])
        self.members[label].append(slot)

    # ---------------------------------------------------------------- taking back

    def forget(self, label: int) -> None:
        """Free the slots of a class; later classes move down by one."""
        if label >= len(self.members):
            return
        own, held = self.members[label], len(self)
        self._free(own, round(self.seen * len(own) / max(1, held)))
        del self.members[label]
        self.labels = [c - (c > label) for c in self.labels]
        self.filled = [c - (c > label) for c in self.filled]
        if "y" in self.columns:
            self.columns["y"] -= (self.columns["y"] > label).long()

    def remove(self, x: Tensor, y: Tensor) -> None:
        """Free the slots of those of the images x (n, ...) of classes y (n,) that are held."""
        self._free(list(self._find(x, y).values()), len(y))

    def relabel(self, x: Tensor, y: Tensor, new: Tensor) -> None:
        """Those of the images x of classes y (n,) that are held are of classes `new` (n,)."""
        classes = new.tolist()
        for item, slot in self._find(x, y).items():
            self._enter(slot, classes[item])
            self.columns["y"][slot] = classes[item]

    def _find(self, x: Tensor, y: Tensor) -> dict[int, int]:
        return find(self.columns["x"], self.labels, x, y.tolist()) if len(self) else {}

    def _free(self, slots: Sequence[int], offered: int) -> None:
        """Slots after a freed one move up; `offered` images count as if they had never come."""
        gone = set(slots)
        kept = [slot for slot in range(len(self)) if slot not in gone]
        moved = {slot: place for place, slot in enumerate(kept)}
        index = torch.tensor(kept, dtype=torch.int64, device=self.device)
        for column in self.columns.values():
            column[: len(kept)] = column[index]
        self.columns = self.columns if kept else {}
        self.labels = [self.labels[slot] for slot in kept]
        self.members = [[moved[s] for s in own if s in moved] for own in self.members]
        self.filled = [label for label, own in enumerate(self.members) if own]
        self.index_in_class = [0] * len(kept)
        for own in self.members:
            for place, slot in enumerate(own):
                self.index_in_class[slot] = place
        self.seen = max(len(kept), self.seen - offered)

    # ---------------------------------------------------------------- state

    @property
    def nbytes(self) -> int:
        """Bytes of the filled slots."""
        filled = len(self)
        return sum(c[:filled].numel() * c.element_size() for c in self.columns.values())

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        """Filled slots only; "place" is `index_in_class`: the order in a class decides draws."""
        if not samples:
            return Memory(self.capacity).state_dict()
        filled = {f"column.{name}": c[: len(self)] for name, c in self.columns.items()}
        place = torch.tensor(self.index_in_class)
        return filled | {"place": place, "seen": torch.tensor(self.seen)}

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        """Take up a state with class ids below `classes`; one that is not sound is a ValueError."""
        _check(state, self.capacity, classes)
        self.seen, self.index_in_class = int(state["seen"]), state["place"].tolist()
        self.columns = {}
        for key, filled in state.items():
            if key.startswith("column."):
                whole = torch.zeros((self.capacity, *filled.shape[1:]), dtype=filled.dtype)
                whole[: len(filled)] = filled
                self.columns[key.removeprefix("column.")] = whole.to(self.device)
        self.labels = self.columns["y"][: len(self.index_in_class)].tolist() if self.columns else []
        self.members = [[] for _ in range(max(self.labels, default=-1) + 1)]
        for label in self.labels:
            self.members[label].append(0)
        for slot, label in enumerate(self.labels):
            self.members[label][self.index_in_class[slot]] = slot
        self.filled = [label for label, slots in enumerate(self.members) if slots]


class _Filled(Sequence[list[int]]):
    """The slots of each class that has any, without a list over the classes at every draw."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def __len__(self) -> int:
        return len(self.memory.filled)

    def __getitem__(self, rank: int) -> list[int]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.memory.members[self.memory.filled[rank]]


_NEVER = (torch.float16, torch.bfloat16, torch.float64)


def _check(state: Mapping[str, Tensor], capacity: int, classes: int) -> None:
    """Sizes before anything is allocated, and places 0..k-1 for the k slots of each class."""
    place, held = state["place"], {k: v for k, v in state.items() if k.startswith("column.")}
    if len(place) > min(capacity, int(state["seen"])) or any(
        len(column) != len(place) or not len(column) for column in held.values()
    ):
        raise ValueError("the sizes of the memory do not fit together")
    odd = [c for c in held.values() if c.dtype.is_complex or c.dtype in _NEVER]
    if odd or place.dim() != 1:
        raise ValueError("the memory holds values of a type that it never has")
    if len(place):
        y = state["column.y"]
        if (
            y.dtype != torch.int64
            or y.shape != place.shape
            or not 0 <= y.min() <= y.max() < classes
        ):
            raise ValueError("the memory holds class ids that do not exist")
        pairs = torch.stack([y, place], 1).unique(dim=0)  # sorted by class, then place
        counts = torch.bincount(y)
        wanted = torch.cat([torch.arange(n) for n in counts.tolist()])
        if len(pairs) != len(y) or not torch.equal(pairs[:, 1], wanted):
            raise ValueError("the class lists of the memory are not sound")
