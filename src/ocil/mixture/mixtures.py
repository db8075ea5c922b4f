"""Mixtures: one diagonal Gaussian mixture per class, all classes of a batch in one tensor program.

Q_c = sum_k pi_kc N(mu_kc, diag(sigma_kc^2)). `update` costs what the classes in the batch cost,
whatever the number of classes known; labels are grouped on the host, so nothing waits for a device
as long as the labels live there.

Life of a class: up to `start.points` points it is one Gaussian (component 0; the other weights are
zero), its variance drawn towards that of the other classes; then its queue is clustered into K
components (kmeans.py), which the objective moves from there on (window.py, dual.py; refit.py only
when it is told to). At 2, 4, ... times `start.points` points, later every `start.again`, the queue
is clustered again: that is how a component that died, or two that share a mode, come back to use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from ocil.errors import OcilError
from ocil.fields import Checked, setting
from ocil.mixture.distances import MixtureReader
from ocil.mixture.dual import Dual, DualSettings
from ocil.mixture.kmeans import StartSettings, clearly_better, cluster, mixture_of_clusters
from ocil.mixture.moments import FLOOR
from ocil.mixture.refit import EmSettings, Refit
from ocil.mixture.store import ClassStore, Group, Ints, group_by_class, split
from ocil.mixture.window import Window, WindowSettings

Objective = Literal[
    "sinkhorn", "em", "stepwise-em", "batch-em", "dual", "debiased", "nll", "task-em", "refit-em"
]
GRADIENT = ("dual", "debiased", "nll")
REFIT = ("task-em", "refit-em")
_NEVER = 2**62


@dataclass(frozen=True)
class MixtureSettings(Checked):
    """How each class's mixture is kept; units are relative, so the feature scale plays no part."""

    components: int = setting(4, low=1, search=(1, 2, 4, 8))
    """Centroids a class (K)."""
    objective: Objective = setting("sinkhorn", was=("fit", "average"))
    """What moves the mixtures, at every batch: sinkhorn (ours), dual (the paper's), debiased, nll,
    em, stepwise-em, batch-em (of the queue); or by batch EM at the end of a class's first task
    (task-em) or from the memory every em.every batches (refit-em)."""
    shrinkage: float = setting(0.0, high=1)
    """Share of the pooled variance in every component's, when reading."""
    window: WindowSettings = setting(WindowSettings())
    start: StartSettings = setting(StartSettings())
    dual: DualSettings = setting(DualSettings(), only={"objective": GRADIENT})
    em: EmSettings = setting(EmSettings(), only={"objective": ("batch-em", *REFIT)})

    def __post_init__(self) -> None:
        super().__post_init__()
        queue, points = self.window.queue, self.window.points
        if points is not None and points > queue:
            raise OcilError(f"window.points is {points}; give at most the queue, {queue} points.")
        if not self.components <= self.seed_points <= queue:
            raise OcilError(
                f"start.points is {self.seed_points}; it must lie between the {self.components} "
                f"components and the queue of {queue} points."
            )

    @property
    def seed_points(self) -> int:
        """Points from which a class has K components."""
        return 16 if self.start.points == "auto" else self.start.points

    @property
    def floor(self) -> float:
        """Least variance, as a share of the mean variance (of a class; with gradients of all)."""
        return self.dual.floor if self.objective in GRADIENT else FLOOR


class Mixtures(MixtureReader):
    """Per-class mixtures in R^dim; classes 0, 1, ... are added when their first points arrive."""

    holds_samples: ClassVar[bool] = False

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
        s, k = self.settings, self.settings.components
        self.components, self.shrinkage, self.length = k, s.shrinkage, s.window.queue
        self.window = 0 if s.window.points is None else s.window.points
        store.add("mu", (k, dim))
        store.add("var", (k, dim), 1.0)
        store.add("log_pi", (k,), -torch.inf)
        store.add("least", ())  # the floor that was last put under the variances
        store.add("queue", (self.length, dim))
        for name in ("count", "first", "seeded", "steps"):  # points seen; first of the window;
            store.add(name, (), host=True)  # whether it has components; updates since
        store.add("due", (), s.seed_points, host=True)  # count of the next clustering
        if s.objective == "batch-em":
            self.window = self.length
        kind = Dual if s.objective in GRADIENT else Refit if s.objective in REFIT else Window
        self.mover = kind(self)
        self.seed_points = _NEVER if s.objective in REFIT else s.seed_points
        self.pooled_variance = torch.zeros(dim, device=store.device, dtype=dtype)  # running

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
            centre = z.mean(0) if len(z) > 1 else torch.zeros_like(self.pooled_variance)
            self.pooled_variance += (z - centre).square().mean().clamp(min=1e-12)
        for part in split(group_by_class(labels), self.length):
            self._round(z, part, generator)

    def _round(self, z: Tensor, group: Group, generator: torch.Generator) -> None:
        """At most a queueful of points per class: remember them, start or restart, then move."""
        self.store.grow(int(group.classes[-1]) + 1)
        if isinstance(self.mover, Refit):  # points of fitted classes say nothing
            group = group.only(self.store.host("fitted")[group.classes] == 0)
        classes = group.classes
        if not len(classes):
            return
        count = self.store.host("count")[classes] + group.sizes
        first = self._advance_window(group, count)
        self.store.enqueue(z, group)
        young = count < self.seed_points
        due = ~young & (count >= self.store.host("due")[classes])
        if young.any():
            self._fit_gaussian(classes[young], count[young], first[young])
        if due.any():
            self._try_recluster(classes[due], count[due], first[due], generator)
        if not young.all():
            old = ~young
            self.mover.move(classes[old], first[old], count[old], generator)

    def _advance_window(self, group: Group, count: Ints) -> Ints:
        """Move the window to its place after this batch; returns the number of its first point.

        The window of a class is its last `window.points` points, at least those of the batch, and
        up to half as many more: points leave it in bunches, which is cheaper. Those that leave
        join the old moments with the responsibilities they had.
        """
        if isinstance(self.mover, Refit):
            return count
        all_first = self.store.host("first")
        past, sizes = all_first[group.classes], group.sizes
        most = np.minimum(np.maximum(sizes, self.window + self.window // 2), self.length)
        first = np.where(count - past > most, count - np.maximum(sizes, self.window), past)
        all_first[group.classes] = first
        moved = first > past
        if isinstance(self.mover, Window) and moved.any():
            self.mover.absorb(group.classes[moved], past[moved], first[moved])
        return first

    def _fit_gaussian(self, classes: Ints, count: Ints, first: Ints) -> None:
        """Young classes: component 0 is the Gaussian of the queue, the others have no weight."""
        rows = self.store.to_device(classes)
        mask = self.store.to_device(np.arange(self.length) < count[:, None])
        resp = self.pooled_variance.new_zeros(len(rows), self.components, self.length)
        resp[:, 0] = mask
        self._start(rows, mask, resp, torch.ones_like(mask[:, 0]), count, first, None)

    def _try_recluster(
        self, classes: Ints, count: Ints, first: Ints, generator: torch.Generator
    ) -> None:
        """Cluster the queues anew and start again where that is called for."""
        s, store, rows = self.settings, self.store, self.store.to_device(classes)
        mask = self.store.to_device(np.arange(self.length) < count[:, None])
        z, *mixture = store.take(rows, "queue", "mu", "var", "log_pi")
        resp, kernel = cluster(z, mask, self.components, s.start.seeding, generator)
        better = clearly_better(resp, kernel, z, mask, (mixture[0], mixture[1], mixture[2]))
        new = store.host("seeded")[classes] == 0
        accept = better | self.store.to_device(new | (count <= self.length))
        self._start(rows, mask, resp, torch.zeros_like(accept), count, first, accept)
        if new.any() and isinstance(self.mover, Dual):
            self.mover.start_networks(self.store.to_device(classes[new]), generator)
        store.host("seeded")[classes] = 1
        wait = _NEVER if s.start.again is None else np.minimum(count, s.start.again)
        store.host("due")[classes] = count + wait

    def _start(
        self, rows: Tensor, mask: Tensor, resp: Tensor, young: Tensor, count: Ints, first: Ints,
        accept: Tensor | None,
    ) -> None:  # fmt: skip
        """Where `accept` (B,), begin the mixtures anew from the clusters of their queue."""
        (z,) = self.store.take(rows, "queue")
        floor = self.settings.floor
        new, found, points = mixture_of_clusters(z, mask, resp, young, self.pooled_variance, floor)
        if isinstance(self.mover, Window):
            new |= self.mover.start(resp, self._settled(count, first), found, points)
        if accept is not None:
            before = dict(zip(new, self.store.take(rows, *new), strict=True))
            for name, value in new.items():
                keep = accept.view(-1, *([1] * (value.ndim - 1)))
                new[name] = torch.where(keep, value, before[name])
        self.store.put(rows, new)

    def _settled(self, count: Ints, first: Ints) -> Tensor:
        """Slots (B, Q) of queued points that are older than the window."""
        last = count[:, None] - 1
        number = last - (last - np.arange(self.length)) % self.length  # latest in each slot
        return self.store.to_device((number >= 0) & (number < first[:, None]))

    # ---------------------------------------------------------------- state

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in use."""
        columns = (self.store[name].nbytes for name in self.store.columns)
        return sum(columns) + self.pooled_variance.nbytes

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        """Copies of all tensors, by name; host counters are int64 tensors."""
        return self.store.state_dict() | {"base": self.pooled_variance.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        """Restore what `state_dict` gave to mixtures of the same settings."""
        if len(state.get("count", ())) > classes:
            raise ValueError(f"there are mixtures of more than the {classes} classes seen")
        if "base" not in state or state["base"].shape != self.pooled_variance.shape:
            raise OcilError(f"The saved mixtures are not of {self.dim} dimensions.")
        self.store.load_state_dict({k: v for k, v in state.items() if k != "base"})
        self.pooled_variance = state["base"].to(self.pooled_variance).clone()

    def forget(self, label: int) -> None:
        """The mixture and the queue of a class; in the variance that all share it remains."""
        self.store.forget(label)
