"""How OTC's mixtures classify: the read-outs, the look inside and what of them is saved."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ocil.learners.learner import Learner, Reader
from ocil.learners.model import Model
from ocil.learners.readouts import Centroids
from ocil.learners.state import below
from ocil.mixture import Mixtures
from ocil.mixture.inside import Inside
from ocil.mixture.whitening import PooledCovariance


class MixtureReadouts(Learner):
    """A learner whose classes are mixtures in the latent space of its averaged weights.

    Every read-out scores a class c by its centroids mu_kc, here for unit features z (n, d):
    mahalanobis -min_k sum_d (z - mu)^2 / sigma^2 (the paper's), mahalanobis-1 the same for the
    merged Gaussian of the class, mahalanobis-full and mahalanobis-full-1 the two with a full
    covariance that all share, euclidean -min_k |z - mu|^2, log-density log Q_c(z), similarity
    log sum_k exp(z.mu_kc / tau), product the sum of the log-probabilities that the linear head and
    similarity give to c.
    """

    mixtures: Mixtures
    pooled: PooledCovariance
    inside: Inside
    tau: float

    @property
    def latent(self) -> Model:
        """The weights whose features the mixtures describe."""
        return self.average.model if self.average else self.model

    def readers(self) -> dict[str, tuple[Model, Reader]]:
        mine: dict[str, Reader] = {
            "mahalanobis": lambda _, z: -self.mixtures.class_distances(unit(z)),
            "mahalanobis-1": lambda _, z: -self.mixtures.mahalanobis(unit(z), merged=True)[:, :, 0],
            "mahalanobis-full": self.read_full,
            "mahalanobis-full-1": self.read_full_merged,
            "euclidean": lambda _, z: -self.mixtures.euclidean(unit(z)).amin(2),
            "log-density": lambda _, z: self.mixtures.log_density(unit(z)),
            "similarity": self.read_similarity,
            "product": self.read_product,
        }
        if not self.model.heads:  # nor is there a covariance where nothing is trained
            for name in ("mahalanobis-full", "mahalanobis-full-1", "product"):
                del mine[name]
        return super().readers() | {name: (self.latent, read) for name, read in mine.items()}

    def own_readers(self) -> dict[str, Reader]:
        own = super().own_readers()
        return own if self.model.heads else {k: v for k, v in own.items() if k != "head"}

    def _checked_readout(self) -> str:
        if self.settings.readout == "auto" and not self.model.heads:
            return "mahalanobis-1"  # few points a class: their mean says more than K centroids
        return super()._checked_readout()

    def read_full(self, _: Model, features: torch.Tensor) -> torch.Tensor:
        """Minus min_k of the Mahalanobis distances with the covariance shared by all."""
        distances = self.pooled.distances(unit(features), self.mixtures.mu)
        return -distances.masked_fill(~self.mixtures.active, torch.inf).amin(2)

    def read_full_merged(self, _: Model, features: torch.Tensor) -> torch.Tensor:
        """The same to the mean of each class: a linear discriminant, with less to estimate."""
        mean = self.mixtures.merged()[0].unsqueeze(1)  # (C, 1, d)
        distances = self.pooled.distances(unit(features), mean)[:, :, 0]
        return -distances.masked_fill(~self.mixtures.active.any(1), torch.inf)

    def read_similarity(self, _: Model, features: torch.Tensor) -> torch.Tensor:
        """log sum_k exp(f(x).mu_kc / tau), what Dynamic Preservation trains."""
        mu = F.normalize(self.mixtures.mu, dim=2)
        scores = torch.einsum("nd,ckd->nck", unit(features), mu) / self.tau
        return scores.masked_fill(~self.mixtures.active, -torch.inf).logsumexp(2)

    def read_product(self, model: Model, features: torch.Tensor) -> torch.Tensor:
        """log p_head(c | x) + log p_similarity(c | x): two readings of the same features."""
        head, similarity = self.read_head(model, features), self.read_similarity(model, features)
        return head.log_softmax(1) + similarity.log_softmax(1)

    @torch.inference_mode()
    def look_inside(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        """Health of the mixtures at a task's end, with test images x (n, ...) of classes y."""
        kinds = {"test": (unit(self.features(self.latent, x)), y.to(self.device))}
        if self.memory is not None and len(self.memory):
            kept = {
                name: column[: len(self.memory)] for name, column in self.memory.columns.items()
            }
            kinds["replayed"] = (unit(self.features(self.latent, kept["x"])), kept["y"])
        return self.inside.describe(kinds)

    @torch.inference_mode()
    def latent_points(self, x: torch.Tensor) -> torch.Tensor:
        """Unit features (n, d) in the space of the mixtures, whichever read-out counts."""
        return unit(self.features(self.latent, x))

    def centroids(self) -> Centroids:
        """The components in use, with their weights and variances."""
        mixtures, active = self.mixtures, self.mixtures.active  # (C, K)
        weights = mixtures.log_pi.exp()[active]
        return Centroids(mixtures.mu[active], active.nonzero()[:, 0], weights, mixtures.var[active])

    # ---------------------------------------------------------------- state

    @property
    def extra_bytes(self) -> int:
        return super().extra_bytes + self.mixtures.nbytes + self.pooled.covariance.nbytes

    def _parts(self) -> dict[str, Any]:
        return {"mixtures": self.mixtures, "pooled": self.pooled, "inside": self.inside}

    def state_dict(self) -> dict[str, torch.Tensor]:
        state = super().state_dict()
        for name, part in self._parts().items():
            state |= {f"{name}.{k}": v for k, v in part.state_dict().items()}
        return state

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        for name, part in self._parts().items():
            part.load_state_dict(below(state, f"{name}."))


def unit(features: torch.Tensor) -> torch.Tensor:
    """Features (n, d) of length one, the space of the mixtures."""
    return F.normalize(features, dim=1)
