"""Reading mixtures: distances and densities of points to all classes, as matrix products.

Shapes: z (n, d), mu and var (C, K, d), log_pi (C, K). A component of weight zero (log_pi = -inf)
is at infinite distance.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ocil.errors import OcilError
from ocil.mixture.moments import LOG_2PI
from ocil.mixture.store import ClassStore

FOLLOW = 0.01  # rate at which the shared covariance follows the features
RIDGE = 0.1  # share of the identity in it
_NAMES = ("mu", "var", "log_pi")


def mahalanobis(z: Tensor, mu: Tensor, var: Tensor, log_pi: Tensor) -> Tensor:
    """sum_j (z_j - mu_kcj)^2 / var_kcj -> (n, C, K), squared, by two products."""
    classes, components, dim = mu.shape
    shift = mu.mean((0, 1))  # expanded squares lose digits far from the origin
    z, mu = z - shift, (mu - shift).view(-1, dim)
    precision = var.view(-1, dim).reciprocal()
    weighted = mu * precision
    distance = torch.addmm((weighted * mu).sum(-1), z.square(), precision.T)
    distance = torch.addmm(distance, z, weighted.T, alpha=-2.0).clamp_(min=0)
    distance = distance.view(-1, classes, components)
    return distance.masked_fill_(log_pi == -torch.inf, torch.inf)


def log_density(z: Tensor, mu: Tensor, var: Tensor, log_pi: Tensor) -> Tensor:
    """log sum_k pi_k N(z; mu_k, diag var_k) -> (n, C)."""
    constant = log_pi - 0.5 * (var.log().sum(-1) + mu.shape[-1] * LOG_2PI)
    return torch.logsumexp(constant - 0.5 * mahalanobis(z, mu, var, log_pi), -1)


def own_distances(z: Tensor, mu: Tensor, var: Tensor, log_pi: Tensor) -> Tensor:
    """Squared Mahalanobis distances of z (n, d) to the components of one class each.

    mu and var are (n, K, d), log_pi (n, K): the rows of each point's own class -> (n, K).
    """
    distance = ((z.unsqueeze(1) - mu).square() / var).sum(-1)
    return distance.masked_fill(log_pi == -torch.inf, torch.inf)


def merged_gaussian(mu: Tensor, var: Tensor, pi: Tensor) -> tuple[Tensor, Tensor]:
    """One Gaussian with the mixture's mean and variance: (B, K, d), (B, K) -> (B, d), (B, d)."""
    mean = (pi.unsqueeze(-1) * mu).sum(-2)
    spread = var + (mu - mean.unsqueeze(-2)).square()
    return mean, (pi.unsqueeze(-1) * spread).sum(-2)


def pool_variance(var: Tensor, log_pi: Tensor) -> Tensor:
    """Within-component variance (d,) over all classes, equal weight per class seen."""
    weight = log_pi.exp()  # (C, K); rows of classes never seen are zero
    total = weight.sum().clamp(min=1e-12)
    return torch.einsum("ck,ckd->d", weight, var) / total


def shrink(var: Tensor, log_pi: Tensor, share: float) -> Tensor:
    """(1 - a) v + a v_pooled; a = 0 returns the variances themselves."""
    if share == 0.0:
        return var
    return torch.lerp(var, pool_variance(var, log_pi).expand_as(var), share)


class MixtureReader:
    """What can be asked of mixtures (C classes, K components, d dimensions); changes nothing."""

    dim: int
    shrinkage: float
    store: ClassStore

    def __len__(self) -> int:
        """Classes known."""
        return self.store.size

    @property
    def mu(self) -> Tensor:
        """Centroids (C, K, d); those of weight zero sit at their class's centre."""
        return self.store.columns["mu"][: self.store.size]

    @property
    def log_pi(self) -> Tensor:
        """Log weights (C, K); -inf for components not in use and classes never seen."""
        return self.store.columns["log_pi"][: self.store.size]

    @property
    def active(self) -> Tensor:
        """Components in use, (C, K) bool."""
        return self.log_pi > -torch.inf

    @property
    def var(self) -> Tensor:
        """Variances (C, K, d) with the settings' shrinkage towards the pooled one."""
        return shrink(self.store["var"], self.log_pi, self.shrinkage)

    def merged(self) -> tuple[Tensor, Tensor]:
        """Mean and variance (C, d) of one Gaussian per class with the mixture's moments."""
        return merged_gaussian(self.mu, self.var, self.log_pi.exp())

    @torch.no_grad()
    def mahalanobis(self, z: Tensor, merged: bool = False) -> Tensor:
        """Squared distances of z (n, d) -> (n, C, K), or (n, C, 1) to the merged Gaussians."""
        if not merged:
            return mahalanobis(self.checked(z), self.mu, self.var, self.log_pi)
        mean, var = (part.unsqueeze(1) for part in self.merged())
        return mahalanobis(self.checked(z), mean, var, self.log_pi.amax(-1, keepdim=True))

    @torch.no_grad()
    def euclidean(self, z: Tensor) -> Tensor:
        """Squared Euclidean distances to the centroids (n, C, K)."""
        return mahalanobis(self.checked(z), self.mu, torch.ones_like(self.mu), self.log_pi)

    def class_distances(self, z: Tensor) -> Tensor:
        """The paper's d(x, c) = min_k of the squared Mahalanobis distances, (n, C)."""
        return self.mahalanobis(z).amin(-1)

    @torch.no_grad()
    def log_density(self, z: Tensor) -> Tensor:
        """log Q_c(z) -> (n, C); -inf for classes never seen."""
        return log_density(self.checked(z), self.mu, self.var, self.log_pi)

    def similarity(self, z: Tensor, tau: float) -> Tensor:
        """log sum_k exp(z.mu_kc / tau) -> (n, C), what Dynamic Preservation trains."""
        scores = torch.einsum("nd,ckd->nck", z, torch.nn.functional.normalize(self.mu, dim=2))
        return (scores / tau).masked_fill(~self.active, -torch.inf).logsumexp(2)

    def own(self, y: Tensor) -> list[Tensor]:
        """mu, var (n, K, d) and log_pi (n, K) of the classes y (n,); the others cost nothing."""
        rows = y.to(self.store.device)
        return [self.store.columns[name].index_select(0, rows) for name in _NAMES]

    @torch.no_grad()
    def own_distances(self, z: Tensor, y: Tensor) -> Tensor:
        """Squared distances of z (n, d) to the components of the own class y (n,), (n, K)."""
        return own_distances(self.checked(z), *self.own(y))

    @torch.no_grad()
    def residuals(self, z: Tensor, y: Tensor) -> Tensor:
        """What separates z (n, d) from the closest component of the own class y (n,), (n, d)."""
        mu, var, log_pi = self.own(y)
        nearest = own_distances(self.checked(z), mu, var, log_pi).argmin(1, keepdim=True)
        return z - torch.take_along_dim(mu, nearest[:, :, None], 1)[:, 0]

    @torch.no_grad()
    def own_class_distances(self, z: Tensor, y: Tensor) -> Tensor:
        """(2,): mean of min_k d(z, own class) / d for K components, then for one Gaussian.

        Points of classes without a mixture are left out; nan if none is left.
        """
        known = y < self.store.size
        z, parts = z[known], self.own(y[known])
        seen = (parts[2] > -torch.inf).any(1)
        if not bool(seen.any()):
            return torch.full((2,), torch.nan, device=z.device)
        z, mu, var, log_pi = (part[seen] for part in (self.checked(z), *parts))
        several = own_distances(z, mu, var, log_pi).amin(1)
        mean, merged = merged_gaussian(mu, var, log_pi.exp())
        one = own_distances(z, mean.unsqueeze(1), merged.unsqueeze(1), mean.new_zeros(len(z), 1))
        return torch.stack([several.mean(), one.mean()]) / z.shape[1]

    @torch.no_grad()
    def sample(self, c: int, n: int, generator: torch.Generator) -> Tensor:
        """n points (n, d) of the mixture of class c."""
        if not 0 <= c < len(self) or not bool(self.active[c].any()):
            raise OcilError(f"Class {c} has no mixture yet; {len(self)} classes are known.")
        device, mu = generator.device, self.mu
        pi = self.log_pi[c].to(device).exp()
        k = torch.multinomial(pi, n, replacement=True, generator=generator).to(mu.device)
        normal = torch.randn(n, self.dim, generator=generator, device=device, dtype=mu.dtype)
        return mu[c, k] + self.var[c, k].sqrt() * normal.to(mu.device)

    def checked(self, z: Tensor) -> Tensor:
        """Points z (n, d) where the mixtures are and as they are, or one sentence."""
        if z.ndim != 2 or z.shape[1] != self.dim:
            raise OcilError(f"The points have shape {tuple(z.shape)}; give (n, {self.dim}).")
        return z.to(self.store.device, self.store.dtype)


class PooledCovariance:
    """A full covariance (d, d) shared by all components of all classes, and distances under it.

    The diagonal mixtures say where the modes are; how features vary around them is much the same
    for every class, so one full covariance can be learnt from all points together:

        S <- (1 - r_t) S + r_t mean_i (z_i - mu_i)(z_i - mu_i)^T,   r_t = max(FOLLOW, 1 / (t + 1)),

    mu_i the closest component of the own class. With S_g = (1 - g) S + g tr(S)/d I and a factor
    S_g = L L^T, the Mahalanobis distance (z - mu)^T S_g^-1 (z - mu) is Euclidean after z -> L^-1 z.
    """

    holds_samples: ClassVar[bool] = False

    def __init__(self, dim: int, device: torch.device) -> None:
        self.covariance = torch.zeros(dim, dim, device=device)
        self.updates = 0

    def update(self, residuals: Tensor) -> None:
        """Follow the residuals (n, d) of one batch."""
        if len(residuals):
            rate = max(FOLLOW, 1 / (self.updates + 1))
            seen = residuals.T @ residuals
            self.covariance.mul_(1 - rate).add_(seen, alpha=rate / len(residuals))
            self.updates += 1

    def factor(self) -> Tensor:
        """L (d, d), lower triangular, of the covariance with its ridge."""
        covariance = self.covariance.cpu()  # not every device has double precision
        scale = covariance.diagonal().mean().clamp(min=1e-12)
        eye = torch.eye(len(covariance), dtype=torch.float64)
        # in units of the mean variance and in double precision: small directions keep their digits
        shrunk = torch.lerp((covariance / scale).double(), eye, RIDGE)
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

    @property
    def nbytes(self) -> int:
        return self.covariance.nbytes

    def state_dict(self, samples: bool = True) -> dict[str, Tensor]:
        return {"covariance": self.covariance, "updates": torch.tensor(self.updates)}

    def load_state_dict(self, state: Mapping[str, Tensor], classes: int) -> None:
        if state["covariance"].shape != self.covariance.shape:
            raise ValueError(f"the covariance is not of {len(self.covariance)} dimensions")
        self.covariance = state["covariance"].to(self.covariance).clone()
        self.updates = int(state["updates"])
        if self.updates < 0:
            raise ValueError(f"the covariance has {self.updates} updates")
        self.factor()  # raises for what is no covariance

    def forget(self, label: int) -> None:
        """All classes share it: what one has added stays."""
