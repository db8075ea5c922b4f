"""Class ids in order of first arrival, so that nobody needs the number of classes in advance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ocil.errors import OcilError

Label = int | float | str  # whole floats only; True and False are integers to Python


class LabelMap:
    """Maps labels (numbers or text) to ids 0, 1, 2, ... in the order in which they first appear.

    >>> labels = LabelMap()
    >>> labels.encode([7, 3, 7])
    [0, 1, 0]
    >>> labels.classes
    [7, 3]
    """

    def __init__(self, classes: Iterable[Label] = ()) -> None:
        self.classes: list[Label] = list(classes)
        self._ids = {label: i for i, label in enumerate(self.classes)}

    def __len__(self) -> int:
        return len(self.classes)

    def __contains__(self, label: Label) -> bool:
        return label in self._ids

    def encode(self, labels: Sequence[Label]) -> list[int]:
        """Ids of the labels; unseen ones are added, or none if one of them is no label."""
        unseen = {_plain(label): None for label in labels if label not in self._ids}
        for label in unseen:
            self._ids[label] = len(self.classes)
            self.classes.append(label)
        return [self._ids[label] for label in labels]

    def forget(self, label: Label) -> int:
        """Take a label out and return the id it had; the ids after it move down by one."""
        gone = self._ids[label]
        self.classes.pop(gone)
        self._ids = {label: i for i, label in enumerate(self.classes)}
        return gone

    def decode(self, ids: Iterable[int]) -> list[Label]:
        return [self.classes[i] for i in ids]


def _plain(label: Any) -> Label:
    """A label as plain data, which can be saved: numbers of NumPy are unpacked."""
    value = label.item() if hasattr(label, "item") else label
    whole = type(value) is float and value.is_integer()
    if type(value) not in (int, str, bool) and not whole:
        raise OcilError(f"A label is {str(value)[:80]!r}; labels must be whole numbers or text.")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OcilError(f"A label has {value.bit_length()} bits; give integers below 2^63.")
    return value
