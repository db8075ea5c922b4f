"""A look inside for the record: how the mixtures of a run fare from task to task.

The own-class Mahalanobis distance of a feature, divided by the dimension, is about 1 where the
mixture describes it. It is asked of three kinds of features: of the stream at their arrival (before
the mixtures have seen them), replayed ones (from the memory) and test ones; and for the run's K
components as well as for each class's merged single Gaussian. The gap between replayed and test
features is what the paper says several centroids narrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ocil.mixture import diagnostics
from ocil.mixture.mmot import Mixtures
from ocil.mixture.reading import own_distances

_NAMES = ("mu", "var", "log_pi")


@torch.no_grad()
def own_class_distances(mixtures: Mixtures, z: Tensor, y: Tensor) -> Tensor:
    """(2,): mean over points of min_k d(z, own class) / d for K components, then for one Gaussian.

    Points of classes without a mixture are left out; nan if none is left.
    """
    known = y < len(mixtures)
    z, y = z[known], y[known]
    if len(y):  # of the classes in y only: what is known besides must cost nothing
        seen = (mixtures.store.take("log_pi", y.to(mixtures.store.device)) > -torch.inf).any(1)
        z, y = z[seen], y[seen]
    if not len(y):
        return torch.full((2,), torch.nan, device=z.device)
    several = mixtures.own_distances(z, y).amin(1)
    mean, var = mixtures.merged_of(y)
    seen = mean.new_zeros(len(y), 1)
    one = own_distances(z, mean.unsqueeze(1), var.unsqueeze(1), seen)[:, 0]
    return torch.stack([several.mean(), one.mean()]) / z.shape[1]


class Inside:
    """Collects what must be measured while learning, and describes the mixtures on request."""

    def __init__(self, mixtures: Mixtures) -> None:
        self.mixtures = mixtures
        self.arrived = torch.zeros(3, device=mixtures.store.device)  # K, one Gaussian, batches
        self.before: tuple[Tensor, ...] = ()

    def arrive(self, z: Tensor, y: Tensor) -> None:
        """Features z (n, d) of the stream, before the mixtures learn from them."""
        distances = own_class_distances(self.mixtures, z, y)
        fresh = torch.cat([distances, distances.new_ones(1)])
        self.arrived += torch.where(distances.isnan().any(), torch.zeros_like(fresh), fresh)

    def describe(self, kinds: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """Plain numbers; `kinds` maps a name to features (n, d) and labels (n,)."""
        found: dict[str, Any] = diagnostics.describe(self.mixtures)
        after = tuple(self.mixtures.store[name] for name in _NAMES)
        if self.before:
            found["drift"] = _plain(diagnostics.drift(self.before, after))  # type: ignore[arg-type]
        pairs = {name: own_class_distances(self.mixtures, *kind) for name, kind in kinds.items()}
        pairs["arrival"] = self.arrived[:2] / self.arrived[2]
        found["own_class_distance"] = {
            name: dict(zip(("components", "single"), _plain(pair), strict=True))
            for name, pair in pairs.items()
        }
        return found

    def new_classes(self, classes: int) -> None:
        """New classes are about to come, `classes` in all: count arrivals anew and measure the
        drift from here on.

        This is when old mixtures are put to the test, and it needs no task id. With many classes
        it is left until a twentieth more have come, or every class would cost a copy of all.
        """
        if self.before and classes < 1.05 * len(self.before[0]):
            return
        self.arrived = torch.zeros_like(self.arrived)
        self.before = tuple(self.mixtures.store[name].clone() for name in _NAMES)

    def state_dict(self) -> dict[str, Tensor]:
        before = dict(zip(_NAMES, self.before, strict=False))
        return {"arrived": self.arrived} | {f"before.{k}": v for k, v in before.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        self.arrived = state["arrived"].to(self.arrived).clone()
        device = self.mixtures.store.device
        there = "before.mu" in state
        self.before = tuple(state[f"before.{n}"].to(device) for n in _NAMES) if there else ()


def _plain(values: Tensor) -> list[float | None]:
    return [round(v, 6) if abs(v) < float("inf") else None for v in values.tolist()]
