"""Counts, sums and the shared second moment of classes, a sample at a time or many.

    n_c, s_c = sum of class c,  G = sum_i (x_i - a)(x_i - a)',  a fixed shift

Sums do not depend on the order of the samples up to rounding, and two sets of sums merge. Samples
enter G a block at a time, so that G is read and written seldom; those that wait are state. How long
a block is depends on the count of samples alone: a twentieth of them, at most 128.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor

from ocil.moments.kept import Kept
from ocil.moments.shrinkage import START
from ocil.moments.triangle import Triangle
from ocil.rows import without

BLOCK = 128  # samples that enter together, at most


class ClassSums:
    """Counts and sums in float64, second moment and waiting samples in float32; a learner's part.

    `choice`: the samples n0 that speak for a round covariance, the count at which they were chosen,
    the share of 2^32 that decides what is kept, and the temperature at which scores are calibrated.
    """

    holds_samples: ClassVar[bool] = True  # their features: some wait, some are kept
    guests: tuple[Tensor, Tensor] | None = None  # samples that count for a while, see `counting`

    def __init__(self, dim: int, device: torch.device | str = "cpu", keeps: bool = True) -> None:
        self.dim, self.device, self.keeps = dim, torch.device(device), keeps
        self.reset()

    def reset(self) -> None:
        """As if nothing had been counted."""
        double = {"dtype": torch.float64, "device": self.device}
        self.counts = torch.zeros(0, dtype=torch.int64, device=self.device)
        self.sums = torch.zeros(0, self.dim, **double)
        self.second = Triangle(self.dim, self.device)
        self.shift = torch.zeros(self.dim, device=self.device)
        self.choice = torch.tensor([0.0, 0.0, 2.0**32, START], **double)
        self.kept = Kept(self.dim, self.device)
        self._start_block()

    def _start_block(self) -> None:
        """Room for the samples that enter G together."""
        size = max(1, min(self.total // 20, BLOCK))
        self.rows = torch.zeros(size, self.dim, device=self.device)
        self.labels = torch.zeros(size, dtype=torch.int64, device=self.device)
        self.pending = 0  # rows in use
        self.changed(None)

    def changed(self, y: Tensor | None) -> None:
        """Told what is new: the means of classes y (n,), or all."""

    def entered(self) -> None:
        """Told that a block has entered G."""

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def classes(self) -> int:
        return len(self.counts)

    def _grow(self, classes: int) -> None:
        if classes > self.classes:
            self.counts, self.sums = padded(self.counts, classes), padded(self.sums, classes)

    def add(self, z: Tensor, y: Tensor) -> None:
        """Count features z (n, d) of classes y (n,); the state does not depend on the calls."""
        self._grow(int(y.max()) + 1)
        while len(y):
            room = len(self.rows) - self.pending
            used, end = slice(room), self.pending + min(room, len(y))
            self.rows[self.pending : end], self.labels[self.pending : end] = z[used], y[used]
            self.sums.index_add_(0, y[used], z[used].double())
            self.counts += torch.bincount(y[used], minlength=self.classes)
            self.pending = end
            self.changed(y[used])
            if end == len(self.rows):
                self.enter()
            z, y = z[room:], y[room:]

    @contextmanager
    def counting(self, z: Tensor, y: Tensor) -> Generator[None]:
        """Inside, the means count features z (n, d) of classes y (n,) as well."""
        counts, sums, known = self.counts, self.sums, y[y < self.classes].unique()
        before = sums[known]
        if (classes := int(y.max()) + 1) > self.classes:
            self.sums = padded(sums, classes)
        self.counts = padded(counts, len(self.sums)) + torch.bincount(y, minlength=len(self.sums))
        self.sums.index_add_(0, y, z.double())
        self.guests = z, y
        self.changed(y)
        try:
            yield
        finally:
            sums[known] = before  # to the bit
            self.counts, self.sums, self.guests = counts, sums, None
            self.changed(y)

    def enter(self) -> None:
        """Let the waiting samples enter the second moment."""
        self._let_in()
        self.entered()

    def _let_in(self) -> None:
        rows, labels, n = self.rows[: self.pending], self.labels[: self.pending], self.total
        if n == self.pending and not bool(self.shift.any()):  # else it came with the encoder
            self.shift = rows.mean(0)
        self.second.add(rows - self.shift)
        self._start_block()
        if self.keeps:
            at = torch.arange(n - len(rows), n, device=self.device)
            self.kept.add(rows, labels, at, self.choice[2])

    def count(self, z: Tensor, y: Tensor) -> None:
        """Count features z (n, d) of classes y (n,) at once: none waits and none is kept."""
        self._grow(int(y.max()) + 1)
        self.sums.index_add_(0, y, z.double())
        self.counts += torch.bincount(y, minlength=self.classes)
        self.second.add(z - self.shift)
        self._start_block()

    def merge(self, other: ClassSums, ids: Tensor | None = None) -> None:
        """Count all that another has counted in the same space; its class c is our ids[c].

        Counts, sums, G and the features kept are those of all samples in whatever order sums are
        merged, up to rounding. The shrinkage is that of whoever chose it by more samples.
        """
        theirs = other._settled()
        if self.pending:
            self._let_in()
        if not self.total and not bool(self.shift.any()):
            self.shift = theirs.shift.clone()
        by = (theirs.shift - self.shift).double()  # x - a = (x - b) + (b - a)
        if bool(by.any()):
            apart = theirs.sums - theirs.counts[:, None] * theirs.shift.double()
            cross = torch.outer(apart.sum(0), by)
            again = cross + cross.T + theirs.total * torch.outer(by, by)
            self.second.add_whole(theirs.second.whole() + again)
        else:
            self.second.packed += theirs.second.packed
        ids = torch.arange(theirs.classes, device=self.device) if ids is None else ids
        if self.keeps and len(theirs.kept.kept_at):
            self._merge_kept(theirs, ids)
        if theirs.choice[1] > self.choice[1]:
            self.choice = torch.cat([theirs.choice[:2], self.choice[2:3], theirs.choice[3:]])
        self._grow(int(ids.max()) + 1 if len(ids) else 0)
        self.counts = self.counts.index_add(0, ids, theirs.counts)
        self.sums = self.sums.index_add(0, ids, theirs.sums)
        self._start_block()

    def _merge_kept(self, theirs: ClassSums, ids: Tensor) -> None:
        for each in (self, theirs):
            facts = (each.counts, each.sums.sum(0), each.kept.kept_at)
            raw = b"".join(fact.cpu().numpy().tobytes() for fact in facts)
            seed = int.from_bytes(hashlib.sha256(raw).digest()[:7], "big")
            each.kept.renumber(float(each.choice[2]), seed)
        self.choice[2].clamp_(max=float(theirs.choice[2]))
        found = theirs.kept
        self.kept.add(found.kept, ids[found.kept_labels], found.kept_at, self.choice[2])

    def _settled(self) -> ClassSums:
        """A copy in which no sample waits."""
        other = copy.copy(self)
        other.second, other.kept = self.second.copy(), copy.copy(self.kept)
        other.choice = self.choice.clone()
        if other.pending:
            other._let_in()
        return other

    def remove(self, z: Tensor, y: Tensor) -> None:
        """Take back features z (n, d) of classes y (n,) that were counted."""
        if self.pending:
            self.enter()
        x = (z - self.shift).double()
        self.second.add_whole(-(x.T @ x))
        self.sums.index_add_(0, y, z.double(), alpha=-1)
        self.counts -= torch.bincount(y, minlength=self.classes)
        self.kept.remove(z, y)
        self._lessened()

    def forget(self, label: int) -> None:
        """Take a class out: its waiting samples and its mean.

        How the others of its samples differed from their mean is not known apart and stays in G:
        G <- G - n_c (mu_c - a)(mu_c - a)'.
        """
        if label >= self.classes:
            return
        counts, means = self.covered()
        self.second.add_whole(-counts[label] * torch.outer(means[label], means[label]))
        stays = (self.labels[: self.pending] != label).nonzero()[:, 0]
        self.rows, self.labels = self.rows[stays], self.labels[stays]
        self.labels -= (self.labels > label).long()
        self.counts, self.sums = without(self.counts, label), without(self.sums, label)
        self.kept.forget(label)
        self.pending = len(stays)
        if self.pending:
            self.enter()
        self._lessened()

    def _lessened(self) -> None:
        self.choice[1].clamp_(max=self.total)
        self._start_block()

    @property
    def means(self) -> Tensor:
        """(C, d) of all that is counted."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def covered(self) -> tuple[Tensor, Tensor]:
        """Counts (C,) and means less the shift (C, d) of the samples in the second moment."""
        y, rows = self.labels[: self.pending], self.rows[: self.pending]
        if self.guests:
            y, rows = torch.cat([y, self.guests[1]]), torch.cat([rows, self.guests[0]])
        counts = self.counts - torch.bincount(y, minlength=self.classes)
        sums = self.sums.index_add(0, y, rows.double(), alpha=-1)
        means = sums / counts.clamp(min=1)[:, None] - self.shift.double()
        return counts, means * (counts > 0)[:, None]

    # ---------------------------------------------------------------- state

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.state_dict().values())

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        """`samples=False`: those that wait have entered, none is kept."""
        if not samples:
            return self._without_samples().state_dict()
        plain = ("counts", "sums", "shift", "choice")
        found = {name: getattr(self, name) for name in plain} | {"second": self.second.packed}
        found |= {name: getattr(self.kept, name) for name in Kept.saved}
        return found | {"rows": self.rows[: self.pending], "labels": self.labels[: self.pending]}

    def _without_samples(self) -> ClassSums:
        other = copy.copy(self)
        other.keeps = False
        other = other._settled()
        other.kept = Kept(self.dim, self.device)
        return other

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        self._check(state, classes)
        self.reset()
        for name in ("counts", "sums", "shift", "choice"):
            setattr(self, name, state[name].to(self.device, copy=True))
        for name in Kept.saved:
            setattr(self.kept, name, state[name].to(self.device, copy=True))
        self.second.packed.copy_(state["second"])
        labels, counts = state["labels"].to(self.device), self.counts
        self.counts = counts - torch.bincount(labels, minlength=classes)
        if int(self.counts.min() if classes else 0) < 0:
            raise ValueError("the moments have more waiting samples than samples")
        self._start_block()
        if len(labels) >= len(self.rows):
            raise ValueError(f"the moments have {len(labels)} waiting samples")
        self.counts, self.pending = counts, len(labels)
        self.rows[: self.pending], self.labels[: self.pending] = state["rows"], labels

    def _check(self, state: Mapping[str, Tensor], classes: int) -> None:
        """Refuse what no state of this many classes has."""
        d, waiting, kept = self.dim, len(state["labels"]), len(state["kept_at"])
        shapes = {"counts": (classes,), "sums": (classes, d), "shift": (d,), "choice": (4,)}
        shapes |= {"second": tuple(self.second.packed.shape)}
        shapes |= {"rows": (waiting, d), "labels": (waiting,)}
        shapes |= {"kept": (kept, d), "kept_labels": (kept,), "kept_at": (kept,)}
        mine = self.state_dict()
        for name, shape in shapes.items():
            value = state[name]
            if value.dtype != mine[name].dtype or tuple(value.shape) != shape:
                raise ValueError(f"{name} of the moments is {value.dtype} {tuple(value.shape)}")
            if not bool(value.isfinite().all()):
                raise ValueError(f"{name} of the moments holds NaN or infinite numbers")
        for name in ("labels", "kept_labels"):
            if len(state[name]) and not 0 <= state[name].min() <= state[name].max() < classes:
                raise ValueError("the moments have samples of classes that do not exist")
        if min(state["choice"].min(), state["counts"].min() if classes else 0) < 0:
            raise ValueError("the moments have counts below 0")


def padded(rows: Tensor, classes: int) -> Tensor:
    """(c, ...) -> (classes, ...) with zeros for the classes that are not there."""
    return torch.cat([rows, rows.new_zeros(classes - len(rows), *rows.shape[1:])])
