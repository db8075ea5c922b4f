"""A full covariance shared by all components of all classes, for reading.

The diagonal mixtures say where the modes are; how features vary around them is much the same for
every class, so one full covariance can be learnt from all points together:

    S <- (1 - r_t) S + r_t mean_i (z_i - mu_i)(z_i - mu_i)^T,   r_t = max(rate, 1 / (t + 1)),

mu_i the closest component of the own class. With S_g = (1 - g) S + g tr(S)/d I and a factor
S_g = L L^T, the Mahalanobis distance (z - mu)^T S_g^-1 (z - mu) is Euclidean after z -> L^-1 z.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ocil.errors import OcilError

LEAST_RIDGE = 1e-5  # directions without variance must not count without end


class PooledCovariance:
    """Running covariance (d, d) of residuals, and distances under it."""

    def __init__(self, dim: int, rate: float, ridge: float, device: torch.device) -> None:
        self.rate, self.ridge = rate, ridge
        self.covariance = torch.zeros(dim, dim, device=device)
        self.updates = 0

    def update(self, residuals: Tensor) -> None:
        """Follow the residuals (n, d) of one batch."""
        if len(residuals):
            rate = max(self.rate, 1 / (self.updates + 1))
            seen = residuals.T @ residuals
            self.covariance.mul_(1 - rate).add_(seen, alpha=rate / len(residuals))
            self.updates += 1

    def factor(self) -> Tensor:
        """L (d, d), lower triangular, of the covariance with its ridge."""
        covariance = self.covariance.cpu()  # not every device has double precision
        scale = covariance.diagonal().mean().clamp(min=1e-12)
        eye = torch.eye(len(covariance), dtype=torch.float64)
        # in units of the mean variance and in double precision: small directions keep their digits
        shrunk = torch.lerp((covariance / scale).double(), eye, max(self.ridge, LEAST_RIDGE))
        lower, failed = torch.linalg.cholesky_ex(shrunk)
        if failed:
            raise OcilError("The shared covariance is no longer finite; lower --lr.")
        return (lower.to(covariance.dtype) * scale.sqrt()).to(self.covariance.device)

    def distances(self, z: Tensor, mu: Tensor) -> Tensor:
        """Squared distances of z (n, d) to mu (C, K, d) -> (n, C, K)."""
        lower = self.factor()
        both = torch.cat([z, mu.flatten(0, 1)]).T
        white = torch.linalg.solve_triangular(lower, both, upper=False).T
        squared = torch.cdist(white[: len(z)], white[len(z) :]).square()
        return squared.view(len(z), *mu.shape[:2])

    def state_dict(self) -> dict[str, Tensor]:
        return {"covariance": self.covariance, "updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if state["covariance"].shape != self.covariance.shape:
            raise ValueError(f"the covariance is not of {len(self.covariance)} dimensions")
        self.covariance = state["covariance"].to(self.covariance).clone()
        self.updates = int(state["updates"])
        if self.updates < 0:
            raise ValueError(f"the covariance has {self.updates} updates")
        self.factor()  # raises for what is no covariance
