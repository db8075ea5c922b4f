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

import numpy as np
import torch
from torch import Tensor

from ocil.errors import OcilError
from ocil.mixture import em, gradient, starts
from ocil.mixture.grouping import Bools, Group, Ints, group_by_class, ring, split
from ocil.mixture.moments import (
    Moments,
    Points,
    floor_of,
    least_variance,
    merge,
    variance_within,
    weighted_moments,
    window_points,
)
from ocil.mixture.reader import MixtureReader
from ocil.mixture.sampling import draw_gumbel
from ocil.mixture.settings import MixtureSettings
from ocil.mixture.store import ClassStore, Rows

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
        store.add("least", ())  # the floor that was last put under the variances
        store.add("queue", (q, dim))
        for name in ("count", "first", "seeded", "steps"):
            store.add(
                name, (), host=True
            )  # points seen; first of the window; seeded; updates since
        store.add("due", (), self.settings.seed_points, host=True)  # count of the next seeding
        self._add_columns()
        self.base = torch.zeros(dim, device=store.device, dtype=dtype)  # running pooled variance
        self._work: dict[str, Tensor] = {}  # places for intermediate results, no state

    def _add_columns(self) -> None:
        """Declare what the objective keeps of each class."""
        k, dim, q = self.settings.components, self.dim, self.settings.queue
        self._windowed = self.settings.objective in ("sinkhorn", "em", "batch-em")
        if not self._windowed:
            gradient.add_columns(self.store, dim, self.settings)
            return
        shapes = ((k,), (k, dim), (k, dim), (q, k))
        for name, shape in zip((*_OLD, "resp"), shapes, strict=True):
            self.store.add(name, shape)

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
        z, labels = z.detach().to(self.store.device, self.store.dtype), y.detach().cpu().numpy()
        if labels.min() < 0:
            raise OcilError(f"A label is {labels.min()}; classes are numbered from 0.")
        # The very first batch gives a scale to start from. Where classes were announced before it
        # (OTC does), the running variance starts from zero and is there after some twenty batches.
        if not self.store.size:
            centre = z.mean(0) if len(z) > 1 else torch.zeros_like(self.base)
            self.base += (z - centre).square().mean().clamp(min=1e-12)
        for group in split(group_by_class(labels), self.settings.queue):
            self._round(z, group, generator)

    def _round(self, z: Tensor, group: Group, generator: torch.Generator) -> None:
        """At most a queueful of points per class: remember them, start or restart, then move."""
        s, store, classes = self.settings, self.store, group.classes
        store.grow(int(classes[-1]) + 1)
        count = store.host("count")[classes] + group.sizes
        first = self._retire(classes, group.sizes, count)
        self._enqueue(z, group)
        young = count < s.seed_points
        due = ~young & (count >= store.host("due")[classes])
        if young.any():
            self._single(classes[young], count[young], first[young])
        if due.any():
            self._challenge(classes[due], count[due], first[due], generator)
        if young.all():
            return
        if young.any():
            classes, count, first = classes[~young], count[~young], first[~young]
        if self._windowed:
            self._window_step(classes, first, count)
        else:
            several = count - first > (0 if s.objective == "nll" else 1)
            classes, count, first = classes[several], count[several], first[several]
            if len(classes):
                self._gradient_step(classes, first, count, generator)
        store.host("steps")[classes] += 1

    def _rows(self, classes: Ints) -> Rows:
        """Where the classes are in the store: a slice where none is missing between them."""
        first, end = int(classes[0]), int(classes[-1]) + 1
        return slice(first, end) if end - first == len(classes) else self._device(classes)

    def _device(self, indices: Ints | Bools) -> Tensor:
        return torch.from_numpy(indices).to(self.store.device)

    def _points(self, flat: Tensor) -> Tensor:
        """The queued points at flat places (B, w) -> (B, w, d), in a place that is used again."""
        queue = self.store.columns["queue"].view(-1, self.dim)
        out = self._place("points", flat).view(-1, self.dim)
        torch.index_select(queue, 0, flat.view(-1), out=out)
        return out.view(*flat.shape, self.dim)

    def _window(self, flat: Tensor, mask: Tensor, shift: Tensor) -> Points:
        """The queued points at flat places (B, w), with their squares."""
        z = self._points(flat)
        return window_points(z, mask, shift, (z, self._place("squares", flat)))

    def _place(self, name: str, flat: Tensor) -> Tensor:
        """Room for (B, w, d) numbers, kept between updates: fresh pages cost more than the work."""
        size = flat.numel() * self.dim
        held = self._work.get(name)
        if held is None or held.numel() < size:
            held = self._work[name] = self.base.new_empty(size)
        return held[:size].view(*flat.shape, self.dim)

    def _retire(self, classes: Ints, sizes: Ints, count: Ints) -> Ints:
        """Move the window to its place after this batch; returns the number of its first point.

        The window of a class is its last `window` points, at least those of the batch, and up to
        half as many more: points leave it in bunches, which is cheaper. Those that leave join the
        old moments with the responsibilities they had.
        """
        store, s = self.store, self.settings
        past = store.host("first")[classes]
        most = np.minimum(np.maximum(sizes, s.window + s.window // 2), s.queue)
        first = np.where(count - past > most, count - np.maximum(sizes, s.window), past)
        store.host("first")[classes] = first
        moved = first > past
        if self._windowed and s.average == "window" and moved.any():
            self._settle(classes[moved], past[moved], first[moved])
        return first

    def _settle(self, classes: Ints, past: Ints, first: Ints) -> None:
        """Add the points numbered past..first-1 to the old moments of their class."""
        store, s, rows = self.store, self.settings, self._rows(classes)
        flat, mask = (self._device(part) for part in ring(classes, past, first, s.queue))
        old = self._old(rows)
        resp = store.columns["resp"].view(-1, s.components).index_select(0, flat.view(-1))
        resp = resp.view(*flat.shape, -1).mT * mask.unsqueeze(1)
        points = self._window(flat, mask, old.mean[:, :1])
        joined = em.cap(merge(old, weighted_moments(resp, points)), s.memory)
        self._put(rows, dict(zip(_OLD, joined, strict=True)))

    def _enqueue(self, z: Tensor, group: Group) -> None:
        """Write the points of the batch into the ring of their class."""
        store, before = self.store, self.store.host("count")[group.classes]
        flat, mask = ring(group.classes, before, before + group.sizes, self.settings.queue)
        points = z.index_select(0, self._device(group.order))
        queue = store.columns["queue"].view(-1, self.dim)
        queue.index_copy_(0, self._device(flat[mask]), points)
        store.host("count")[group.classes] = before + group.sizes

    def _old(self, rows: Rows) -> Moments:
        return Moments(*(self.store.take(name, rows) for name in _OLD))

    def _mixture(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        take = self.store.take
        return take("mu", rows), take("var", rows), take("log_pi", rows)

    def _put(self, rows: Rows, columns: dict[str, Tensor]) -> None:
        for name, values in columns.items():
            self.store.put(name, rows, values)

    def _single(self, classes: Ints, count: Ints, first: Ints) -> None:
        """Young classes: component 0 is the Gaussian of the queue, the others have no weight."""
        rows = self._device(classes)
        z, mask = self._queues(rows, count)
        resp = z.new_zeros(len(rows), self.settings.components, z.shape[1])
        resp[:, 0] = mask
        self._start(rows, z, mask, self._settled(count, first), resp, None)

    def _challenge(
        self, classes: Ints, count: Ints, first: Ints, generator: torch.Generator
    ) -> None:
        """Cluster the queues anew and start again where that is called for."""
        s, store, rows = self.settings, self.store, self._device(classes)
        z, mask = self._queues(rows, count)
        noise = draw_gumbel((len(classes), s.restarts, s.components, s.queue), generator, z)
        resp, better = starts.challenge(z, mask, self._mixture(rows), noise, s)
        new = store.host("seeded")[classes] == 0
        accept = better | self._device(new | (count <= s.queue))
        self._start(rows, z, mask, self._settled(count, first), resp, accept)
        if new.any() and "phi.w1" in store.columns:
            gradient.start_networks(store, self._device(classes[new]), generator)
        store.host("seeded")[classes] = 1
        wait = np.minimum(count, s.reseed_every) if s.reseed_every else _NEVER
        store.host("due")[classes] = count + wait

    def _queues(self, rows: Tensor, count: Ints) -> tuple[Tensor, Tensor]:
        """The queues (B, Q, d) and which of their slots are filled (B, Q)."""
        mask = np.arange(self.settings.queue) < count[:, None]
        return self.store.take("queue", rows), self._device(mask)

    def _settled(self, count: Ints, first: Ints) -> Tensor:
        """Slots (B, Q) of queued points that are older than the window."""
        q, last = self.settings.queue, count[:, None] - 1
        number = last - (last - np.arange(q)) % q  # the latest point written to each slot
        return self._device((number >= 0) & (number < first[:, None]))

    def _start(
        self,
        rows: Tensor,
        z: Tensor,
        mask: Tensor,
        settled: Tensor,
        resp: Tensor,
        accept: Tensor | None,
    ) -> None:
        """Where `accept` (B,), begin the mixtures anew from the clusters of their queue."""
        new = starts.from_clusters(z, mask, settled, resp, self.base, self.settings)
        for name, values in new.items():
            if name not in self.store.columns:
                continue
            if accept is not None:
                keep = accept.view(-1, *([1] * (values.ndim - 1)))
                values = torch.where(keep, values, self.store.take(name, rows))
            self.store.put(name, rows, values)

    def _window_step(self, classes: Ints, first: Ints, count: Ints) -> None:
        """sinkhorn, em, batch-em: a plan over the window, then its moments."""
        s, store, rows = self.settings, self.store, self._rows(classes)
        places, valid = ring(classes, first, count, s.queue)
        flat, mask = self._device(places), self._device(valid)
        rate = None
        if s.average == "stepwise":
            power = (store.host("steps")[classes, None] + 2.0) ** -s.rate_power
            rate = torch.from_numpy(power).to(store.device, store.dtype)
        mixture = self._mixture(rows)
        points = self._window(flat, mask, mixture[0].mean(1, keepdim=True))
        step = em.window_step(points, mixture, self._old(rows), rate, self.base, s)
        self._put(rows, {"mu": step.mu, "var": step.var, "log_pi": step.log_pi})
        store.put("least", rows, floor_of(step.pooled, s.floor).flatten())
        if rate is None:
            resp, where = step.resp.mT, flat.view(-1)
            if not valid.all():
                resp, where = resp[mask], flat[mask]
            resp = resp.reshape(-1, s.components)
            store.columns["resp"].view(-1, s.components).index_copy_(0, where, resp)
            store.put("old_mass", rows, step.old.mass)
        else:
            self._put(rows, dict(zip(_OLD, step.joined, strict=True)))
        self.base.lerp_(step.pooled.mean((0, 1)), 0.05)

    def _gradient_step(
        self, classes: Ints, first: Ints, count: Ints, generator: torch.Generator
    ) -> None:
        """dual, debiased, nll; the floor is a share of the running variance within classes.

        These objectives pull the variances down without end, so it is taken from the points.
        """
        rows, q = self._device(classes), self.settings.queue
        flat, mask = (self._device(part) for part in ring(classes, first, count, q))
        z = self._points(flat)
        var = variance_within(z, mask)
        if var is not None:
            self.base.lerp_(var, 0.05 if self.base.any() else 1.0)
        floor = self.settings.floor * self.base.mean()
        steps = torch.from_numpy(self.store.host("steps")[classes])
        step = gradient.GradientStep(self.store, rows, steps, self.settings)
        floor = floor.clamp(min=least_variance(z.dtype))
        step.run(z, mask, floor, generator)
        self.store.put("least", rows, floor.expand(len(rows)))
