"""How the mixtures fare, in numbers for the record.

The own-class Mahalanobis distance of a feature, divided by the dimension, is about 1 where the
mixture describes it. It is asked of three kinds of features: of the stream at their arrival (before
the mixtures have seen them), replayed ones (from the memory) and test ones; and for the run's K
components as well as for each class's merged single Gaussian. The gap between replayed and test
features is what the paper says several centroids narrow.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ocil.mixture.mixtures import Mixtures
from ocil.mixture.transport import mixture_wasserstein
from ocil.rows import without

_NAMES = ("mu", "var", "log_pi")


def spread(mu: Tensor, var: Tensor, active: Tensor) -> Tensor:
    """Mean distance between the active centroids of a class in units of its rms |sigma| (C,).

    nan for a class with fewer than two components in use.
    """
    pair = active.unsqueeze(-1) & active.unsqueeze(-2)
    pair = pair & ~torch.eye(active.shape[-1], dtype=torch.bool, device=pair.device)
    total = (torch.cdist(mu, mu) * pair).sum((-2, -1)) / pair.sum((-2, -1))
    norm = (var.sum(-1) * active).sum(-1) / active.sum(-1)
    return total / norm.sqrt()


def at_floor(var: Tensor, active: Tensor, variance_floor: Tensor) -> Tensor:
    """Share of a class's variances (C,) at the `variance_floor` (C,) last put under them."""
    weight = active.unsqueeze(-1).expand_as(var).to(var.dtype)
    low = (var <= 1.0001 * variance_floor.view(-1, 1, 1)).to(var.dtype) * weight
    return low.sum((-2, -1)) / weight.sum((-2, -1))


def drift(before: tuple[Tensor, ...], after: tuple[Tensor, ...]) -> Tensor:
    """Mixture-Wasserstein distance (C,) between two states (mu, var, log pi) of the same classes.

    `after` may know more classes; those are left out. nan where a class had no mixture yet.
    """
    size = len(before[0])
    later = tuple(part[:size] for part in after)
    known = (before[2] > -torch.inf).any(-1) & (later[2] > -torch.inf).any(-1)
    result = torch.full((size,), torch.nan, dtype=before[0].dtype, device=before[0].device)
    if bool(known.any()):
        first, second = ([part[known] for part in state] for state in (before, later))
        result[known] = mixture_wasserstein(*first, *second)
    return result


def describe(mixtures: Mixtures) -> dict[str, list[float | None]]:
    """Per class: spread, quartiles of sigma, share at the floor, smallest and largest weight."""
    active, var, pi = mixtures.active, mixtures.store["var"], mixtures.log_pi.exp()
    sigma = torch.where(active.unsqueeze(-1), var, torch.nan).sqrt().flatten(1)
    numbers = {
        "spread": spread(mixtures.mu, var, active),
        "at_floor": at_floor(var, active, mixtures.store["least"]),
        "weight_min": torch.where(active, pi, torch.inf).amin(-1),
        "weight_max": pi.amax(-1),
    }
    for name, level in (("sigma_25", 0.25), ("sigma_50", 0.5), ("sigma_75", 0.75)):
        numbers[name] = torch.nanquantile(sigma, level, dim=-1)
    return {name: _plain(values) for name, values in numbers.items()}


class Diagnostics:
    """Collects what must be measured while learning, and describes the mixtures on request."""

    holds_samples: ClassVar[bool] = False
    nbytes = 0  # it measures; nothing that is learned depends on it

    def __init__(self, mixtures: Mixtures) -> None:
        self.mixtures = mixtures
        self.arrived = torch.zeros(3, device=mixtures.store.device)  # K, one Gaussian, batches
        self.before: tuple[Tensor, ...] = ()

    def arrive(self, z: Tensor, y: Tensor) -> None:
        """Features z (n, d) of the stream, before the mixtures learn from them."""
        distances = self.mixtures.own_class_distances(z, y)
        fresh = torch.cat([distances, distances.new_ones(1)])
        self.arrived += torch.where(distances.isnan().any(), torch.zeros_like(fresh), fresh)

    def describe(self, kinds: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, Any]:
        """Plain numbers; `kinds` maps a name to features (n, d) and labels (n,)."""
        found: dict[str, Any] = describe(self.mixtures)
        if self.before:
            after = tuple(self.mixtures.store[name] for name in _NAMES)
            found["drift"] = _plain(drift(self.before, after), 6)
        pairs = {name: self.mixtures.own_class_distances(*kind) for name, kind in kinds.items()}
        pairs["arrival"] = self.arrived[:2] / self.arrived[2]
        found["own_class_distance"] = {
            name: dict(zip(("components", "single"), _plain(pair, 6), strict=True))
            for name, pair in pairs.items()
        }
        return found

    def new_classes(self, classes: int) -> None:
        """New classes are about to come, `classes` in all: from here on arrivals are counted anew.

        So is the drift: this is when old mixtures are put to the test, and it needs no task id.
        With many classes it is left until a twentieth more have come, or every class would cost a
        copy of all.
        """
        if not self.before or classes >= 1.05 * len(self.before[0]):
            self.arrived = torch.zeros_like(self.arrived)
            self.before = tuple(self.mixtures.store[name].clone() for name in _NAMES)

    def forget(self, label: int) -> None:
        self.before = tuple(without(rows, label) for rows in self.before)

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        before = dict(zip(_NAMES, self.before, strict=False))
        return {"arrived": self.arrived} | {f"before.{k}": v for k, v in before.items()}

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        self.arrived = state["arrived"].to(self.arrived).clone()
        device = self.mixtures.store.device
        there = "before.mu" in state
        self.before = tuple(state[f"before.{n}"].to(device) for n in _NAMES) if there else ()


def _plain(values: Tensor, digits: int | None = None) -> list[float | None]:
    """JSON numbers; none for what is not finite."""
    finite = (value if abs(value) < float("inf") else None for value in values.tolist())
    return [v if v is None or digits is None else round(v, digits) for v in finite]
