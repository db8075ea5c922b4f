"""Taking back what a classifier has learned: a class, samples, wrong labels.

Memory, pending samples, counts, class means and exact sums forget; weights that were trained on the
samples do not, see docs/own-data.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from ocil import samples
from ocil.labels import Label
from ocil.memory.matching import find
from ocil.modelfile import Learned
from ocil.samples import BadInput
from ocil.text import plain


def known_labels(now: Learned) -> list[Label]:
    """Labels learned, and those that wait to be."""
    waiting = now.pending[1] if now.pending else []
    return list(dict.fromkeys([*now.session.labels.classes, *waiting]))


def forget(now: Learned, label: Label) -> None:
    """Take a class out; its name is free."""
    (label,) = _checked(now, [label])
    if now.pending:
        _keep_pending(now, [i for i, own in enumerate(now.pending[1]) if own != label])
    if label in now.session.labels.classes:
        now.session.forget(label)
        del now.counts[label]


def forget_samples(now: Learned, x: Tensor, y: Sequence[Label]) -> None:
    """Take samples back; a class without any left is forgotten."""
    x, y = _learned_part(now, x, _checked(now, y), None)
    if y:
        now.session.remove(x, y)
        _uncount(now, y)


def relabel(now: Learned, x: Tensor, y: Sequence[Label], new: Sequence[Label]) -> None:
    """Samples that came with labels y are those of `new`."""
    old = _checked(now, y)
    new = samples.labels(new, len(x), known_labels(now))
    changed = [i for i, label in enumerate(old) if label != new[i]]
    x, old, new = x[changed], [old[i] for i in changed], [new[i] for i in changed]
    wanted = dict(enumerate(new))
    x, old = _learned_part(now, x, old, wanted)
    if old:
        now.session.relabel(x, old, list(wanted.values()))
        now.counts.update(wanted.values())
        _uncount(now, old)


def _checked(now: Learned, y: Sequence[Label]) -> list[Label]:
    """Labels y, all of them known."""
    known = known_labels(now)
    found = samples.labels(y, len(y), known)
    if missing := [label for label in found if label not in known]:
        there = ", ".join(plain(label, 40) for label in known[:5])
        raise BadInput(f"No class {plain(missing[0], 40)} was learned; there are {there} ...")
    return found


def _learned_part(
    now: Learned, x: Tensor, y: list[Label], wanted: dict[int, Label] | None
) -> tuple[Tensor, list[Label]]:
    """Correct the samples that are pending; the others, which were learned, are returned.

    `wanted`: the right label of each, of which those returned are left; None: they go.
    """
    waiting = find(*now.pending, x, y) if now.pending else {}
    others = [i for i in range(len(y)) if i not in waiting]
    asked = Counter(y[i] for i in others)
    for label, count in asked.items():
        if count > now.counts[label]:
            raise BadInput(
                f"{count} samples of class {plain(label, 40)} are to be taken back, but "
                f"{now.counts[label]} were learned; give each as often as it was learned."
            )
    if now.pending and wanted is not None:
        for i, place in waiting.items():
            now.pending[1][place] = wanted.pop(i)
    elif now.pending:
        gone = set(waiting.values())
        _keep_pending(now, [i for i in range(len(now.pending[1])) if i not in gone])
    return x[others], [y[i] for i in others]


def _keep_pending(now: Learned, places: list[int]) -> None:
    assert now.pending is not None
    x, y = now.pending
    now.pending = (x[torch.tensor(places)], [y[i] for i in places]) if places else None


def _uncount(now: Learned, y: Sequence[Label]) -> None:
    now.counts.subtract(y)
    for label in dict.fromkeys(y):
        if not now.counts[label]:
            now.session.forget(label)
            del now.counts[label]
