"""The reading half of the mixtures: distances, densities, samples, state."""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.errors import OcilError
from ocil.mixture import reading
from ocil.mixture.moments import merged_gaussian
from ocil.mixture.settings import MixtureSettings
from ocil.mixture.store import ClassStore


class MixtureReader:
    """What can be asked of mixtures (C classes, K components, d dimensions); changes nothing."""

    dim: int
    settings: MixtureSettings
    store: ClassStore
    base: Tensor

    def __len__(self) -> int:
        """Classes known."""
        return self.store.size

    @property
    def mu(self) -> Tensor:
        """Centroids (C, K, d); those of weight zero sit at their class's centre."""
        return self.store["mu"]

    @property
    def log_pi(self) -> Tensor:
        """Log weights (C, K); -inf for components not in use and classes never seen."""
        return self.store["log_pi"]

    @property
    def active(self) -> Tensor:
        """Components in use, (C, K) bool."""
        return self.store["log_pi"] > -torch.inf

    @property
    def counts(self) -> Tensor:
        """Points seen of each class, (C,) on the CPU."""
        return self.store["count"]

    @property
    def var(self) -> Tensor:
        """Variances (C, K, d) with the settings' shrinkage towards the pooled one."""
        return reading.shrink(self.store["var"], self.log_pi, self.settings.shrinkage)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Mean and variance (C, d) of one Gaussian per class with the mixture's moments."""
        return merged_gaussian(self.mu, self.var, self.log_pi.exp())

    @torch.no_grad()
    def merged_of(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (n, d) of the merged Gaussians of classes y (n,), and of no others."""
        rows = y.to(self.store.device)
        mu, var, log_pi = (self.store.take(name, rows) for name in ("mu", "var", "log_pi"))
        return merged_gaussian(mu, var, log_pi.exp())

    @torch.no_grad()
    def mahalanobis(self, z: Tensor, merged: bool = False) -> Tensor:
        """Squared distances of z (n, d) -> (n, C, K), or (n, C, 1) to the merged Gaussians."""
        z = self._checked(z)
        if not merged:
            return reading.mahalanobis(z, self.mu, self.var, self.log_pi)
        mean, var = (part.unsqueeze(1) for part in self.merged())
        seen = self.log_pi.amax(-1, keepdim=True)
        return reading.mahalanobis(z, mean, var, seen)

    @torch.no_grad()
    def euclidean(self, z: Tensor) -> Tensor:
        """Squared Euclidean distances to the centroids (n, C, K)."""
        return reading.mahalanobis(self._checked(z), self.mu, torch.ones_like(self.mu), self.log_pi)

    def class_distances(self, z: Tensor) -> Tensor:
        """The paper's d(x, c) = min_k of the squared Mahalanobis distances, (n, C)."""
        return self.mahalanobis(z).amin(-1)

    @torch.no_grad()
    def log_density(self, z: Tensor) -> Tensor:
        """log Q_c(z) -> (n, C); -inf for classes never seen."""
        return reading.log_density(self._checked(z), self.mu, self.var, self.log_pi)

    @torch.no_grad()
    def own_distances(self, z: Tensor, y: Tensor) -> Tensor:
        """Squared distances of z (n, d) to the components of the own class y (n,), (n, K).

        Costs nothing for the other classes, so it may be asked at every step.
        """
        rows = y.to(self.store.device)
        mu, var = self.store.take("mu", rows), self.store.take("var", rows)
        return reading.own_distances(self._checked(z), mu, var, self.store.take("log_pi", rows))

    @torch.no_grad()
    def sample(self, c: int, n: int, generator: torch.Generator) -> Tensor:
        """n points (n, d) of the mixture of class c."""
        if not 0 <= c < len(self) or not bool(self.active[c].any()):
            raise OcilError(f"Class {c} has no mixture yet; {len(self)} classes are known.")
        device = generator.device
        log_pi = self.log_pi[c].to(device)
        k = torch.multinomial(log_pi.exp(), n, replacement=True, generator=generator)
        normal = torch.randn(n, self.dim, generator=generator, device=device, dtype=self.mu.dtype)
        k, normal = k.to(self.mu.device), normal.to(self.mu.device)
        return self.mu[c, k] + self.var[c, k].sqrt() * normal

    @property
    def nbytes(self) -> int:
        """Bytes of the rows in use."""
        return sum(self.store[n].nbytes for n in self.store.columns) + self.base.nbytes

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of all tensors, by name; host counters are int64 tensors."""
        return self.store.state_dict() | {"base": self.base.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore what `state_dict` gave to mixtures of the same settings."""
        columns = {name: value for name, value in state.items() if name != "base"}
        if "base" not in state or state["base"].shape != self.base.shape:
            raise OcilError(f"The saved mixtures are not of {self.dim} dimensions.")
        self.store.load_state_dict(columns)
        self.base = state["base"].to(self.base).clone()

    def _checked(self, z: Tensor) -> Tensor:
        if z.ndim != 2 or z.shape[1] != self.dim:
            raise OcilError(f"The points have shape {tuple(z.shape)}; give (n, {self.dim}).")
        return z.to(self.store.device, self.store.dtype)
