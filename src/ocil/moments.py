"""Exact statistics of the classes in a space that never moves, and the linear discriminant.

    counts n_c, sums s_c of every class, G = sum_i (x_i - a)(x_i - a)', a fixed shift
    mu_c = s_c / n_c,  S = (G - sum_c n_c (mu_c - a)(mu_c - a)') / n
    Sigma = (1 - rho) S + rho tr(S)/d I
    score_c(x) = mu_c' Sigma^-1 x - mu_c' Sigma^-1 mu_c / 2        (equal priors)

Sums do not depend on the order of the samples up to rounding, and two sets of sums merge. Samples
enter G a block at a time; means are always those of now, Sigma is that of the last whole block. How
long a block is depends on the count of samples alone, so equal states give equal scores.

The shrinkage rho is n0 / (n0 + n): n0 samples that speak for a round covariance. It is chosen by
the exact leave-one-out loss of some samples over a grid, from one eigendecomposition, whenever the
count has doubled. The samples are those that the caller gives to `choose`, or features kept here,
an even choice of all. (A block about to enter would do as well, but it has only the classes of the
moment, and chooses badly.) Before the first choice rho is that of Chen et al. 2010 (OAS).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ocil import shrinkage

KEPT = 512  # features kept to choose the shrinkage, at most; half of them at least
SPARE = 256  # samples before the first choice
GROUP = 16  # classes that are solved together: equal shapes give equal bits
SPREAD = 2654435761  # 2^32 over the golden ratio: multiples of it are evenly spread modulo 2^32


class ClassMoments:
    """Counts and sums in float64, second moment and pending block in float32; a part of learners.

    `keeps`: features are kept to choose the shrinkage; else `choose` is to be called when `due`.
    """

    holds_samples: ClassVar[bool] = False  # features of some
    saved = ("counts", "sums", "second", "shift", "choice", "kept", "kept_labels", "kept_at")

    def __init__(self, dim: int, device: torch.device | str = "cpu", keeps: bool = True) -> None:
        self.dim, self.device, self.keeps = dim, torch.device(device), keeps
        self.reset()

    def reset(self) -> None:
        """As if nothing had been counted."""
        double = {"dtype": torch.float64, "device": self.device}
        self.counts = torch.zeros(0, dtype=torch.int64, device=self.device)
        self.sums = torch.zeros(0, self.dim, **double)
        self.second = torch.zeros(self.dim, self.dim, device=self.device)
        self.shift = torch.zeros(self.dim, device=self.device)
        # n0, the count at which it was chosen, and the share of 2^32 below which samples are kept
        self.choice = torch.tensor([0.0, 0.0, 2.0**32], **double)
        self.kept = torch.zeros(0, self.dim, device=self.device)
        self.kept_labels = torch.zeros(0, dtype=torch.int64, device=self.device)
        self.kept_at = self.kept_labels.clone()  # their numbers in the stream
        self._start_block()

    def _start_block(self) -> None:
        """Room for the samples that enter G together: n/4 up to 256, later n/20 up to d/4."""
        n = self.total
        size = max(1, min(n // 4, 256), min(n // 20, self.dim // 4))
        self.rows = torch.zeros(size, self.dim, device=self.device)
        self.labels = torch.zeros(size, dtype=torch.int64, device=self.device)
        self.pending = 0  # rows in use
        self._factor: Tensor | None = None

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def classes(self) -> int:
        return len(self.counts)

    # ---------------------------------------------------------------- learning

    def add(self, z: Tensor, y: Tensor) -> None:
        """Count features z (n, d) of classes y (n,); the state does not depend on the calls."""
        if (classes := int(y.max()) + 1) > self.classes:
            self.counts, self.sums = _padded(self.counts, classes), _padded(self.sums, classes)
        while len(y):
            room = len(self.rows) - self.pending
            used, end = slice(room), self.pending + min(room, len(y))
            self.rows[self.pending : end], self.labels[self.pending : end] = z[used], y[used]
            self.sums.index_add_(0, y[used], z[used].double())
            self.counts += torch.bincount(y[used], minlength=self.classes)
            self.pending, self._stale = end, True
            if end == len(self.rows):
                self.enter()
            z, y = z[room:], y[room:]

    def enter(self) -> None:
        """Let the pending samples enter the second moment."""
        rows, labels, n = self.rows[: self.pending], self.labels[: self.pending], self.total
        if n == self.pending:
            self.shift = rows.mean(0)
        shifted = rows - self.shift
        self.second.addmm_(shifted.T, shifted)
        self._start_block()
        if self.keeps:
            self._keep(rows, labels, torch.arange(n - len(rows), n, device=self.device))
            if self.due:
                self.choose(self.kept, self.kept_labels)

    def _keep(self, rows: Tensor, labels: Tensor, at: Tensor) -> None:
        """Keep an even choice of all samples, the same however they came in calls."""
        self.kept = torch.cat([self.kept, rows])
        self.kept_labels = torch.cat([self.kept_labels, labels])
        self.kept_at = torch.cat([self.kept_at, at])
        while True:
            few = (self.kept_at * SPREAD % 2**32 < self.choice[2]).nonzero()[:, 0]
            if len(few) <= KEPT:
                break
            self.choice[2] /= 2
        self.kept, self.kept_labels = self.kept[few], self.kept_labels[few]
        self.kept_at = self.kept_at[few]

    @property
    def due(self) -> bool:
        """Whether the shrinkage is to be chosen anew."""
        return self.total - self.pending >= max(SPARE, 2 * float(self.choice[1]))

    def choose(self, z: Tensor, y: Tensor) -> None:
        """Choose the shrinkage by some of the samples that are counted: z (m, d), y (m,)."""
        if self.pending:
            self.enter()
        usable = (self.counts[y] > 1).nonzero()[:, 0]
        if len(usable) and int((self.counts > 0).sum()) > 1:
            losses = self.losses((z[usable] - self.shift).double(), y[usable])
            rho, n = shrinkage.choose(losses), self.total
            self.choice[0], self.choice[1] = n * rho / (1 - rho), n
            self._factor = None

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """What each rho of the grid costs samples z (m, d), less the shift, of classes y (m,)."""
        means = self.means - self.shift.double()
        return shrinkage.left_out_losses(self.covariance(), means, self.counts, z, y)

    def merge(self, other: ClassMoments) -> None:
        """Count all that another has counted in the same space; the shrinkage stays ours."""
        if self.pending:
            self.enter()
        if not self.total:
            self.shift = other.shift.clone()
        by = (other.shift - self.shift).double()  # x - a = (x - b) + (b - a)
        shifted = other.rows[: other.pending] - other.shift
        cross = torch.outer((other.sums - other.counts[:, None] * other.shift.double()).sum(0), by)
        again = cross + cross.T + other.total * torch.outer(by, by)
        self.second += (other.second.double() + again).float() + shifted.T @ shifted
        classes = max(self.classes, other.classes)
        self.counts = _padded(self.counts, classes) + _padded(other.counts, classes)
        self.sums = _padded(self.sums, classes) + _padded(other.sums, classes)
        self._start_block()

    # ---------------------------------------------------------------- reading

    @property
    def means(self) -> Tensor:
        """(C, d) of all that is counted."""
        return self.sums / self.counts.clamp(min=1)[:, None]

    def _covered(self) -> tuple[Tensor, Tensor]:
        """Counts (C,) and means less the shift (C, d) of the samples in the second moment."""
        y, rows = self.labels[: self.pending], self.rows[: self.pending]
        counts = self.counts - torch.bincount(y, minlength=self.classes)
        sums = self.sums.index_add(0, y, rows.double(), alpha=-1)
        means = sums / counts.clamp(min=1)[:, None] - self.shift.double()
        return counts, means * (counts > 0)[:, None]

    def covariance(self) -> Tensor:
        """S (d, d) in float64, of the samples in the second moment."""
        counts, means = self._covered()
        scatter = self.second.double() - (means * counts[:, None]).T @ means
        return scatter / counts.sum().clamp(min=1)

    def regularised(self, s: Tensor, n: int) -> Tensor:
        """Sigma (d, d) from the covariance of n samples, in its place."""
        level, n0 = float(s.diagonal().mean()), float(self.choice[0])
        # what the sums of float32 leave in place of a zero
        noise = 1e-7 * self.dim**0.5 * float(self.second.diagonal().mean()) / n
        if level <= 10 * noise:  # no two samples of a class differ
            return torch.eye(self.dim, dtype=s.dtype, device=s.device)
        rho = n0 / (n0 + n) if n0 else shrinkage.oas(s, n)
        s.mul_(1 - rho).diagonal().add_(max(rho * level, noise))
        return s

    def factor(self) -> Tensor:
        """Lower triangle L (d, d) with L L' = Sigma; kept until another block enters."""
        if (known := self._factor) is None:
            sigma = self.regularised(self.covariance(), self.total - self.pending)
            self._factor = known = torch.linalg.cholesky(sigma)
            self._solved, self._stale = {}, True
        return known

    def targets(self) -> Tensor:
        """(C, d), what Sigma^-1 is applied to."""
        return self.means - self.shift.double()

    def bias(self, weight: Tensor) -> Tensor:
        """(C,) for weights Sigma^-1 mu (C, d)."""
        return -(weight * self.targets()).sum(1) / 2

    def weights(self) -> tuple[Tensor, Tensor]:
        """W (C, d) and b (C,): score_c(x) = W_c (x - a) + b_c."""
        factor = self.factor()
        if self._stale:
            whole = -(-self.classes // GROUP) * GROUP
            groups = _padded(self.targets(), whole).split(GROUP)
            for g, part in enumerate(groups):
                if g not in self._solved or not torch.equal(self._solved[g][0], part):
                    self._solved[g] = part, torch.cholesky_solve(part.T, factor).T
            solved = torch.cat([self._solved[g][1] for g in range(len(groups))])[: self.classes]
            self._weights = solved, self.bias(solved).masked_fill(self.counts == 0, -torch.inf)
            self._stale = False
        return self._weights

    def scores(self, z: Tensor) -> Tensor:
        """Features (n, d) -> scores (n, C) of the discriminant."""
        weight, bias = self.weights()
        return torch.addmm(bias, (z - self.shift).double(), weight.T).float()

    # ---------------------------------------------------------------- state

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.state_dict().values())

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        waiting = {"rows": self.rows[: self.pending], "labels": self.labels[: self.pending]}
        return {name: getattr(self, name) for name in self.saved} | waiting

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        rows, labels, d = state["rows"], state["labels"], self.dim
        shapes = {"counts": (classes,), "sums": (classes, d), "second": (d, d), "shift": (d,)}
        shapes |= {"choice": (3,), "rows": (len(labels), d), "labels": (len(labels),)}
        kept = len(state["kept_at"])
        shapes |= {"kept": (kept, d), "kept_labels": (kept,), "kept_at": (kept,)}
        for name, shape in shapes.items():
            now, value = getattr(self, name), state[name]
            if value.dtype != now.dtype or tuple(value.shape) != shape:
                raise ValueError(f"{name} of the moments is {value.dtype} {tuple(value.shape)}")
            if not bool(value.isfinite().all()):
                raise ValueError(f"{name} of the moments holds NaN or infinite numbers")
        for name in ("labels", "kept_labels"):
            if len(state[name]) and not 0 <= state[name].min() <= state[name].max() < classes:
                raise ValueError("the moments have samples of classes that do not exist")
        if min(state["choice"].min(), state["counts"].min() if classes else 0) < 0:
            raise ValueError("the moments have counts below 0")
        for name in self.saved:
            setattr(self, name, state[name].to(self.device, copy=True))
        before = self.counts
        self.counts = before - torch.bincount(labels.to(self.device), minlength=classes)
        if int(self.counts.min() if classes else 0) < 0:
            raise ValueError("the moments have more pending samples than samples")
        self._start_block()
        if len(labels) >= len(self.rows):
            raise ValueError(f"the moments have {len(labels)} pending samples")
        self.counts, self.pending = before, len(labels)
        self.rows[: self.pending], self.labels[: self.pending] = rows, labels


def _padded(rows: Tensor, classes: int) -> Tensor:
    """(c, ...) -> (classes, ...) with zeros for the classes that are not there."""
    return torch.cat([rows, rows.new_zeros(classes - len(rows), *rows.shape[1:])])
