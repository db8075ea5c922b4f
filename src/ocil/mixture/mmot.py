"""Mixtures: one diagonal Gaussian mixture per class, all classes of a batch in one tensor program.

Q_c = sum_k pi_kc N(mu_kc, diag(sigma_kc^2)). `update` costs what the classes in the batch cost,
whatever the number of classes known; labels are grouped on the host, so nothing waits for a device
as long as the labels live there.

Life of a class: up to `seed_points` points it is one Gaussian (component 0; the other weights are
zero), its variance drawn towards that of the other classes; then its queue is clustered into K
components, which the objective moves from there on. At 2, 4, ... times `seed_points` points, later
every `reseed_every`, a fresh clustering of the queue challenges the mixture (starts.py): that is
how a component that died, or two that share a mode, come back to use.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.errors import OcilError
from ocil.mixture import em, gradient, starts
from ocil.mixture.grouping import Group, group_by_class, split
from ocil.mixture.moments import Moments, merge, weighted_moments, window_points
from ocil.mixture.reader import MixtureReader
from ocil.mixture.sampling import draw_gumbel
from ocil.mixture.settings import MixtureSettings
from ocil.mixture.store import ClassStore

_OLD = ("old_mass", "old_mean", "old_var")
_NEVER = 2**62


class Mixtures(MixtureReader):
    """Per-class mixtures in R^dim; classes 0, 1, ... are added when their first points arrive."""

    def __init__(
        self,
        dim: int,
        settings: MixtureSettings | None = None,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if dim < 1:
            raise OcilError(f"The dimension of the features is {dim}; give at least 1.")
        self.dim, self.settings = dim, settings or MixtureSettings()
        self.store = store = ClassStore(torch.device(device), dtype)
        k, q = self.settings.components, self.settings.queue
        store.add("mu", (k, dim))
        store.add("var", (k, dim), 1.0)
        store.add("log_pi", (k,), -torch.inf)
        store.add("queue", (q, dim))
        for name in ("count", "seeded", "steps"):  # points seen; whether seeded; updates since
            store.add(name, (), host=True)
        store.add("due", (), self.settings.seed_points, host=True)  # count of the next seeding
        self._windowed = self.settings.objective in ("sinkhorn", "em", "batch-em")
        if self._windowed:
            for name, shape in zip(
                (*_OLD, "resp"), ((k,), (k, dim), (k, dim), (k, q)), strict=True
            ):
                store.add(name, shape)
        else:
            gradient.add_columns(store, dim, self.settings)
        self.base = torch.zeros(dim, device=store.device, dtype=dtype)  # running pooled variance

    @torch.no_grad()
    def update(self, z: Tensor, y: Tensor, generator: torch.Generator) -> None:
        """Move the mixtures of the classes in y (n,) by the points z (n, d)."""
        if z.ndim != 2 or z.shape[1] != self.dim or y.shape != z.shape[:1]:
            raise OcilError(
                f"The points have shape {tuple(z.shape)} and the labels {tuple(y.shape)}; "
                f"give (n, {self.dim}) and (n,)."
            )
        if not len(y):
            return
        z, labels = z.detach().to(self.store.device, self.store.dtype), y.detach().cpu()
        if int(labels.min()) < 0:
            raise OcilError(f"A label is {int(labels.min())}; classes are numbered from 0.")
        if not self.store.size:  # the very first batch gives a scale to start from
            centre = z.mean(0) if len(z) > 1 else torch.zeros_like(self.base)
            self.base += (z - centre).square().mean().clamp(min=1e-12)
        for group in split(group_by_class(labels), self.settings.queue):
            self._round(z, group, generator)

    def _round(self, z: Tensor, group: Group, generator: torch.Generator) -> None:
        """At most a queueful of points per class: remember them, start or restart, then move."""
        s, store, classes = self.settings, self.store, group.classes
        store.grow(int(classes[-1]) + 1)
        count, slots = self._enqueue(z, group)
        young = count < s.seed_points
        if bool(young.any()):
            self._single(classes[young], count[young])
        due = count >= store["due"][classes]
        if bool(due.any()):
            self._challenge(classes[due], count[due], generator)
        grown = ~young
        if not bool(grown.any()):
            return
        rows = classes[grown].to(store.device)
        if self._windowed:
            now = None if s.window else torch.where(group.mask, slots, s.queue)[grown]
            self._window_step(classes[grown], rows, count[grown], now)
        else:
            if s.window:
                points, mask = self._window(rows, count[grown])
            else:
                points, mask = z[group.index[grown].to(z.device)], group.mask[grown].to(z.device)
            self._gradient_step(classes[grown], rows, points, mask, generator)
        store["steps"][classes[grown]] += 1

    def _enqueue(self, z: Tensor, group: Group) -> tuple[Tensor, Tensor]:
        """Write the points into the ring of their class; counts after (B,) and slots (B, n)."""
        store, q = self.store, self.settings.queue
        before = store["count"][group.classes]
        place = before.unsqueeze(1) + torch.arange(group.mask.shape[1])
        slots = place % q
        leaving = group.mask & (place >= q)
        if self._windowed and self.settings.average == "window" and bool(leaving.any()):
            self._retire(group.classes.to(store.device), slots.to(store.device), leaving)
        flat = (group.classes.unsqueeze(1) * q + slots)[group.mask].to(store.device)
        points = z.index_select(0, group.index[group.mask].to(store.device))
        store.columns["queue"].view(-1, self.dim).index_copy_(0, flat, points)
        count = before + group.sizes
        store["count"][group.classes] = count
        return count, slots

    def _retire(self, rows: Tensor, slots: Tensor, leaving: Tensor) -> None:
        """Add the points about to be overwritten to the old moments of their class."""
        store, mask = self.store, leaving.to(rows.device)
        flat = (rows.unsqueeze(1) * self.settings.queue + slots).view(-1)
        z = store.columns["queue"].view(-1, self.dim).index_select(0, flat)
        resp = store.take("resp", rows)
        resp = resp.gather(2, slots.unsqueeze(1).expand(-1, resp.shape[1], -1)) * mask.unsqueeze(1)
        old = self._old(rows)
        points = window_points(z.view(*slots.shape, -1), mask, old.mean.mean(1, keepdim=True))
        joined = em.cap(merge(old, weighted_moments(resp, points)), self.settings.memory)
        self._put(rows, dict(zip(_OLD, joined, strict=True)))

    def _window(self, rows: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """The queues (B, Q, d) and which of their slots are filled (B, Q)."""
        mask = torch.arange(self.settings.queue) < count.unsqueeze(1)
        return self.store.take("queue", rows), mask.to(rows.device)

    def _old(self, rows: Tensor) -> Moments:
        return Moments(*(self.store.take(name, rows) for name in _OLD))

    def _mixture(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        take = self.store.take
        return take("mu", rows), take("var", rows), take("log_pi", rows)

    def _put(self, rows: Tensor, columns: dict[str, Tensor]) -> None:
        for name, values in columns.items():
            self.store.put(name, rows, values)

    def _single(self, classes: Tensor, count: Tensor) -> None:
        """Young classes: component 0 is the Gaussian of the queue, the others have no weight."""
        rows = classes.to(self.store.device)
        z, mask = self._window(rows, count)
        resp = z.new_zeros(len(rows), self.settings.components, z.shape[1])
        resp[:, 0] = mask
        self._start(rows, z, mask, resp, torch.ones_like(rows, dtype=torch.bool))

    def _challenge(self, classes: Tensor, count: Tensor, generator: torch.Generator) -> None:
        """Cluster the queues anew and start again where that is called for."""
        s, store, rows = self.settings, self.store, classes.to(self.store.device)
        z, mask = self._window(rows, count)
        shape = (len(classes), s.restarts, s.components, s.queue)
        noise = draw_gumbel(shape, generator, z)
        resp, better = starts.challenge(z, mask, self._mixture(rows), noise, s)
        first = store["seeded"][classes] == 0
        accept = better | (first | (count <= s.queue)).to(rows.device)
        self._start(rows, z, mask, resp, accept)
        if bool(first.any()) and "phi.w1" in store.columns:
            gradient.start_networks(store, rows[first.to(rows.device)], generator)
        store["seeded"][classes] = 1
        store["due"][classes] = (
            count + count.clamp(max=s.reseed_every) if s.reseed_every else _NEVER
        )

    def _start(self, rows: Tensor, z: Tensor, mask: Tensor, resp: Tensor, accept: Tensor) -> None:
        """Where `accept` (B,), begin the mixtures anew from the clusters of their queue."""
        new = starts.from_clusters(z, mask, resp, self.base, self.settings)
        if self.settings.average == "window":  # the queue itself holds every point so far
            new["old_mass"] = torch.zeros_like(new["old_mass"])
        for name, values in new.items():
            if name in self.store.columns:
                keep = accept.view(-1, *([1] * (values.ndim - 1)))
                self.store.put(name, rows, torch.where(keep, values, self.store.take(name, rows)))

    def _window_step(
        self, classes: Tensor, rows: Tensor, count: Tensor, now: Tensor | None
    ) -> None:
        """sinkhorn, em, batch-em; `now` (B, n) restricts them to these slots of the queue."""
        s, store = self.settings, self.store
        z, mask = self._window(rows, count)
        if now is not None:  # padded points go to a column that is cut off
            fresh = torch.zeros(len(rows), s.queue + 1, dtype=torch.bool).scatter_(1, now, True)
            mask = fresh[:, :-1].to(rows.device)
        rate = None
        if s.average == "stepwise":
            rate = (store["steps"][classes] + 2).to(store.dtype) ** -s.rate_power
            rate = rate.to(rows.device).unsqueeze(1)
        mixture = self._mixture(rows)
        points = window_points(z, mask, mixture[0].mean(1, keepdim=True))
        step = em.window_step(points, mixture, self._old(rows), rate, self.base, s)
        self._put(rows, {"mu": step.mu, "var": step.var, "log_pi": step.log_pi, "resp": step.resp})
        if rate is not None:
            self._put(rows, dict(zip(_OLD, step.joined, strict=True)))
        else:
            store.put("old_mass", rows, step.old.mass)
        self.base.lerp_(step.pooled.mean((0, 1)), 0.05)

    def _gradient_step(
        self, classes: Tensor, rows: Tensor, z: Tensor, mask: Tensor, generator: torch.Generator
    ) -> None:
        """dual, debiased, nll; the floor is a share of the running pooled variance."""
        floor = self.settings.floor * self.base.mean()
        steps = self.store["steps"][classes]
        gradient.GradientStep(self.store, rows, steps, self.settings).run(z, mask, floor, generator)
