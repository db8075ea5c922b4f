"""How OTC's mixtures classify: the read-outs, the look inside and what of them is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from ocil.learners.model import Model
from ocil.learners.otc_settings import OtcSettings
from ocil.learners.readouts import Centroids, Features, Readout
from ocil.learners.replay import ReplayLearner
from ocil.mixture import Mixtures
from ocil.mixture.inside import Inside
from ocil.mixture.whitening import PooledCovariance


class MixtureReadouts(ReplayLearner[OtcSettings]):
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

    @property
    def latent(self) -> Model:
        """The weights whose features the mixtures describe."""
        return self.average.model if self.average else self.model

    def latent_features(self, features: Features) -> torch.Tensor:
        return unit(features["average" if self.average else "live"])

    def readouts(self) -> dict[str, Readout]:
        mine: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "mahalanobis": lambda z: -self.mixtures.class_distances(z),
            "mahalanobis-1": lambda z: -self.mixtures.mahalanobis(z, merged=True)[:, :, 0],
            "mahalanobis-full": self.read_full,
            "mahalanobis-full-1": self.read_full_merged,
            "euclidean": lambda z: -self.mixtures.euclidean(z).amin(2),
            "log-density": lambda z: self.mixtures.log_density(z),
            "similarity": self.read_similarity,
        }
        if not self.model.heads:  # nor is there a covariance where nothing is trained
            del mine["mahalanobis-full"], mine["mahalanobis-full-1"]
        z, own = self.latent_features, super().readouts()
        found = {name: Readout(lambda f, r=read: r(z(f)), z) for name, read in mine.items()}
        if self.model.heads:
            found["product"] = Readout(self.read_product, z)
        return own | found

    def readouts_in(self, space: str, model: Model) -> dict[str, Readout]:
        own = super().readouts_in(space, model)
        return own if self.model.heads else {k: v for k, v in own.items() if k != "head"}

    def choose_readout(self) -> str:
        if self.settings.readout == "auto" and not self.model.heads:
            return "mahalanobis-1"  # few points a class: their mean says more than K centroids
        return super().choose_readout()

    def read_full(self, z: torch.Tensor) -> torch.Tensor:
        """Minus min_k of the Mahalanobis distances with the covariance shared by all."""
        distances = self.pooled.distances(z, self.mixtures.mu)
        return -distances.masked_fill(~self.mixtures.active, torch.inf).amin(2)

    def read_full_merged(self, z: torch.Tensor) -> torch.Tensor:
        """The same to the mean of each class: a linear discriminant, with less to estimate."""
        mean = self.mixtures.merged()[0].unsqueeze(1)  # (C, 1, d)
        distances = self.pooled.distances(z, mean)[:, :, 0]
        return -distances.masked_fill(~self.mixtures.active.any(1), torch.inf)

    def read_similarity(self, z: torch.Tensor) -> torch.Tensor:
        """log sum_k exp(f(x).mu_kc / tau), what Dynamic Preservation trains."""
        mu = F.normalize(self.mixtures.mu, dim=2)
        scores = torch.einsum("nd,ckd->nck", z, mu) / self.settings.tau
        return scores.masked_fill(~self.mixtures.active, -torch.inf).logsumexp(2)

    def read_product(self, features: Features) -> torch.Tensor:
        """log p_head(c | x) + log p_similarity(c | x): two readings of the same features."""
        space = "average" if self.average else "live"
        head = self.latent.head(features[space])
        similarity = self.read_similarity(unit(features[space]))
        return head.log_softmax(1) + similarity.log_softmax(1)

    @torch.inference_mode()
    def diagnose(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        """Health of the mixtures at a task's end, with test images x (n, ...) of classes y."""
        kinds = {"test": (unit(self.encode(self.latent, x)), y.to(self.device))}
        if self.memory is not None and len(self.memory):
            kept = {
                name: column[: len(self.memory)] for name, column in self.memory.columns.items()
            }
            kinds["replayed"] = (unit(self.encode(self.latent, kept["x"])), kept["y"])
        return self.inside.describe(kinds)

    @torch.inference_mode()
    def latent_points(self, x: torch.Tensor) -> torch.Tensor:
        """Unit features (n, d) in the space of the mixtures, whichever read-out counts."""
        return unit(self.encode(self.latent, x))

    def centroids(self) -> Centroids:
        """The components in use, with their weights and variances."""
        mixtures, active = self.mixtures, self.mixtures.active  # (C, K)
        weights = mixtures.log_pi.exp()[active]
        return Centroids(mixtures.mu[active], active.nonzero()[:, 0], weights, mixtures.var[active])


class Wrapped:
    """A part of the mixtures, as the base saves and counts it."""

    holds_samples: ClassVar[bool] = False

    def __init__(self, part: Any) -> None:
        self.part = part

    @property
    def nbytes(self) -> int:
        if isinstance(self.part, PooledCovariance):
            return self.part.covariance.nbytes
        return self.part.nbytes if isinstance(self.part, Mixtures) else 0

    def state_dict(self, samples: bool = True) -> Mapping[str, torch.Tensor]:
        return self.part.state_dict()

    def load_state_dict(self, state: Mapping[str, torch.Tensor], classes: int) -> None:
        self.part.load_state_dict(state)


def unit(features: torch.Tensor) -> torch.Tensor:
    """Features (n, d) of length one, the space of the mixtures."""
    return F.normalize(features, dim=1)
