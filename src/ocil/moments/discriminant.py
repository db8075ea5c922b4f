"""The linear discriminant of exact class statistics (`ocil.moments.sums`).

    mu_c = s_c / n_c,  S = (G - sum_c n_c (mu_c - a)(mu_c - a)') / n
    Sigma = (1 - rho) S + rho tr(S)/d I
    score_c(x) = mu_c' Sigma^-1 x - mu_c' Sigma^-1 mu_c / 2        (equal priors)

Means are always those of now, Sigma is that of the last whole block, so equal states give equal
scores whenever they are asked for.

The shrinkage rho is n0 / (n0 + n): n0 samples that speak for a round covariance. It is chosen by
the exact leave-one-out loss of some samples over a grid, from one eigendecomposition, at 300, 600
and 1 200 samples and whenever they are four times as many. The samples are those that the caller
gives to `choose`, or features kept here, an even choice of all. (A block about to enter would do as
well, but it has only the classes of the moment, and chooses badly.) Before, rho is that of Chen et
al. 2010 (OAS).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.moments import shrinkage
from ocil.moments.sums import ClassSums, padded

FIRST, LATER = 300, 1200  # samples at the first choice, and when choices become fewer
LEAST = 20  # samples that choose where a stream pauses
GROUP = 16  # classes that are solved together: equal shapes give equal bits


def due_after(chosen: int) -> int:
    """Samples at which the shrinkage is chosen next, after a choice at so many."""
    return max(FIRST, chosen * (2 if chosen < LATER else 4))


def last_due(n: int) -> int:
    """Samples at which one stream of n has chosen last.

    >>> last_due(1199), last_due(60_000)
    (600, 19200)
    """
    chosen = FIRST
    while due_after(chosen) <= n:
        chosen = due_after(chosen)
    return chosen


class ClassMoments(ClassSums):
    """`keeps`: features are kept to choose the shrinkage; else `choose` is called when `due`."""

    rho = _drawn = 1.0  # shrinkage of the factor, and of the latest matrix

    def changed(self, y: Tensor | None) -> None:
        if y is None:
            self._factor: Tensor | None = None
            self._background: tuple[Tensor, Tensor] | None = None
            self._solved: set[int] = set()  # groups of classes whose weights are those of now
        else:
            self._solved -= set((y // GROUP).tolist())

    # ---------------------------------------------------------------- shrinkage

    @property
    def until_due(self) -> int:
        """Samples to come until the shrinkage is to be chosen anew; 0 or less: now."""
        return due_after(int(self.choice[1])) - self.total

    def entered(self) -> None:
        if self.keeps and self.until_due <= 0:
            self.choose(self.kept.kept, self.kept.kept_labels)

    def choose(self, z: Tensor, y: Tensor, at: int | None = None) -> None:
        """Choose the shrinkage by some of the samples that are counted: z (m, d), y (m,).

        `at`: as if it were chosen after so many samples and not after all.
        """
        if self.pending:
            self.enter()
        usable = (self.counts[y] > 1).nonzero()[:, 0]
        n = self.choice[1] = self.total if at is None else at
        if len(usable) and int((self.counts > 0).sum()) > 1:
            losses = self.losses((z[usable] - self.shift).double(), y[usable])
            if not bool(losses.isfinite().all()):  # no two samples of a class differ
                return
            rho, self.choice[3] = shrinkage.choose(losses, len(usable))
            self.choice[0] = n * rho / (1 - rho)
            self.changed(None)

    def settle(self, z: Tensor, y: Tensor) -> None:
        """Choose by samples z (m, d), y (m,) if that was never done, or long ago."""
        if len(y) >= LEAST and self.total >= 2 * int(self.choice[1]):
            self.choose(z, y)

    def losses(self, z: Tensor, y: Tensor) -> Tensor:
        """Losses (R, T) of samples z (m, d), less the shift, of classes y (m,)."""
        means = self.means - self.shift.double()
        return shrinkage.left_out_losses(self.covariance(), means, self.counts, z, y)

    def covariance(self) -> Tensor:
        """S (d, d) in float64, of the samples in the second moment."""
        counts, means = self.covered()
        scatter = self.second.whole().addmm_((means * counts[:, None]).T, means, alpha=-1)
        return scatter.div_(counts.sum().clamp(min=1))

    def regularised(self, s: Tensor, n: int) -> Tensor:
        """Sigma (d, d) from the covariance of n samples, in its place."""
        level, n0 = float(s.diagonal().mean()), float(self.choice[0])
        # what the sums of float32 leave in place of a zero
        noise = 1e-7 * self.dim**-0.5 * self.second.trace() / max(1, n)
        if level <= 10 * noise:  # no two samples of a class differ
            return torch.eye(self.dim, dtype=s.dtype, device=s.device)
        self._drawn = rho = n0 / (n0 + n) if n0 else shrinkage.oas(s, n)
        s.mul_(1 - rho).diagonal().add_(max(rho * level, noise))
        return s

    # ---------------------------------------------------------------- reading

    def factor(self) -> Tensor:
        """Lower triangle L (d, d) with L L' = Sigma; kept until another block enters."""
        if (known := self._factor) is None:
            sigma = self.regularised(self.covariance(), int(self.covered()[0].sum()))
            self._factor = known = torch.linalg.cholesky(sigma)
            self.rho = self._drawn
        return known

    def background(self) -> tuple[Tensor, Tensor]:
        """The same factor of the covariance of all samples as one class, and their mean (d,)."""
        if (known := self._background) is None:
            counts, means = self.covered()
            n = counts.sum().clamp(min=1)
            mean = (means * counts[:, None]).sum(0) / n
            total = self.second.whole().div_(n).addr_(mean, mean, alpha=-1)
            factor = torch.linalg.cholesky(self.regularised(total, int(n)))
            self._background = known = (factor, mean)
        return known

    def targets(self, part: slice) -> Tensor:
        """(c, d) of some classes, what Sigma^-1 is applied to."""
        means = self.sums[part] / self.counts[part].clamp(min=1)[:, None]
        return means - self.shift.double()

    def bias(self, weight: Tensor, target: Tensor) -> Tensor:
        """(c,) for weights Sigma^-1 mu (c, d) and targets mu (c, d)."""
        return -(weight * target).sum(1) / 2

    @torch.inference_mode()
    def weights(self) -> tuple[Tensor, Tensor]:
        """W (C, d) and b (C,): score_c(x) = W_c (x - a) + b_c."""
        factor, groups = self.factor(), -(-self.classes // GROUP)
        if not self._solved:
            self._weight = self.sums.new_zeros(0, self.dim)
            self._bias = self.sums.new_zeros(0)
        self._weight = padded(self._weight, max(groups * GROUP, len(self._weight)))
        self._bias = padded(self._bias, len(self._weight))
        for g in set(range(groups)) - self._solved:
            here = slice(g * GROUP, (g + 1) * GROUP)
            target = padded(self.targets(here), GROUP)
            weight = self._weight[here] = torch.cholesky_solve(target.T, factor).T
            absent = padded(self.counts[here], GROUP) == 0
            self._bias[here] = self.bias(weight, target).masked_fill(absent, -torch.inf)
            self._solved.add(g)
        return self._weight[: self.classes], self._bias[: self.classes]

    @torch.inference_mode()
    def scores(self, z: Tensor) -> Tensor:
        """Features (n, d) -> scores (n, C) of the discriminant."""
        weight, bias = self.weights()
        return torch.addmm(bias, (z - self.shift).double(), weight.T).float()
