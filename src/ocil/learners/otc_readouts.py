"""How OTC's mixtures classify.

Every read-out scores a class c by its centroids mu_kc, here for unit features z (n, d):
mahalanobis -min_k sum_d (z - mu)^2 / sigma^2 (the paper's), mahalanobis-1 the same for the merged
Gaussian of the class, mahalanobis-full and mahalanobis-full-1 the two with a full covariance that
all share (the second is a linear discriminant), euclidean -min_k |z - mu|^2, log-density
log Q_c(z), similarity log sum_k exp(z.mu_kc / tau), product the sum of the log-probabilities that
the linear head and similarity give to c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil.learners.anchor import Scores
from ocil.learners.model import Model
from ocil.learners.otc_settings import OtcSettings
from ocil.learners.readouts import Centroids, Features, Readout
from ocil.learners.replay import ReplayLearner
from ocil.mixture import Diagnostics, Mixtures, PooledCovariance

LEAST = -20.0  # log-probability of a class that a mixture cannot name
TRAINED = ("mahalanobis-full", "mahalanobis-full-1", "product")  # exist where a net is trained


class MixtureReader(ReplayLearner[OtcSettings]):
    """The half of OTC that reads; the other learns (otc.py)."""

    mixtures: Mixtures
    pooled: PooledCovariance
    inside: Diagnostics

    @property
    def latent(self) -> Model:
        """The weights whose features the mixtures describe."""
        return self.average.model if self.average else self.model

    def scaled(self, features: Tensor) -> Tensor:
        """Features (n, d) as the mixtures see them: of unit length, or as they are."""
        return F.normalize(features, dim=1) if self.settings.features == "unit" else features

    def encode_latent(self, x: Tensor) -> Tensor:
        """Features (n, d) of raw images in the space of the mixtures."""
        return self.scaled(self.encode(self.latent, x))

    def readouts(self) -> dict[str, Readout]:
        begun = self.trained or self.settings.effort != "low"
        return super().readouts() | (readouts(self) if begun else {})

    def learned_scores(self) -> Scores:
        return learned_scores(self, super().learned_scores())

    @torch.inference_mode()
    def latent_points(self, x: Tensor) -> Tensor:
        return self.encode_latent(x)  # whichever read-out counts

    def centroids(self) -> Centroids:
        return centroids(self.mixtures)

    def diagnose(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        return diagnose(self, x, y)


def readouts(otc: MixtureReader) -> dict[str, Readout]:
    """All of them, by name; the mixtures are looked at when scores are asked for."""
    space = "average" if otc.average else "live"

    def unit(features: Features) -> Tensor:
        return otc.scaled(features[space])

    def full(z: Tensor) -> Tensor:
        distances = otc.pooled.distances(z, otc.mixtures.mu)
        return -distances.masked_fill(~otc.mixtures.active, torch.inf).amin(2)

    def full_merged(z: Tensor) -> Tensor:
        distances = otc.pooled.distances(z, otc.mixtures.merged()[0].unsqueeze(1))[:, :, 0]
        return -distances.masked_fill(~otc.mixtures.active.any(1), torch.inf)

    def similarity(z: Tensor) -> Tensor:
        return otc.mixtures.similarity(z, otc.settings.tau)

    def product(features: Features) -> Tensor:
        head = otc.latent.head(features[space]).log_softmax(1)
        return head + similarity(unit(features)).log_softmax(1)

    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "mahalanobis": lambda z: -otc.mixtures.class_distances(z),
        "mahalanobis-1": lambda z: -otc.mixtures.mahalanobis(z, merged=True)[:, :, 0],
        "mahalanobis-full": full,
        "mahalanobis-full-1": full_merged,
        "euclidean": lambda z: -otc.mixtures.euclidean(z).amin(2),
        "log-density": lambda z: otc.mixtures.log_density(z),
        "similarity": similarity,
    }

    def foreign(features: Features) -> Tensor:
        """The distance to the nearest centroid, under the covariance that all share if it moves."""
        nearest = full if otc.pooled.updates else ways["mahalanobis-1"]
        return -nearest(unit(features)).amax(1)

    found = {
        name: Readout(lambda f, way=way: way(unit(f)), unit, novelty=foreign)
        for name, way in ways.items()
    }
    return found | {"product": Readout(product, unit, novelty=foreign)}


def learned_scores(otc: MixtureReader, head: Scores | None) -> Scores:
    """The mean of the log-probabilities by the head, where there is one, and by similarity."""
    mixtures = readouts(otc)["similarity"].scores

    def scores(features: Features) -> Tensor:
        own = mixtures(features).log_softmax(1)
        own = F.pad(own, (0, otc.classes - own.shape[1]), value=LEAST)  # classes that just came
        own = own.nan_to_num(nan=LEAST).clamp(min=LEAST)  # or whose mixture has not begun
        return (own + head(features)) / 2 if head else own

    return scores


@torch.inference_mode()
def diagnose(otc: MixtureReader, x: Tensor, y: Tensor) -> dict[str, Any]:
    """How the mixtures describe test images x (n, ...) of classes y (n,), and replayed ones."""
    kinds = {"test": (x, y.to(otc.device))}
    if len(otc.memory):
        kinds["replayed"] = otc.memory_items()
    return otc.inside.describe({k: (otc.encode_latent(x), y) for k, (x, y) in kinds.items()})


def centroids(mixtures: Mixtures) -> Centroids:
    """The components in use, with their weights and variances."""
    active = mixtures.active  # (C, K)
    weights = mixtures.log_pi.exp()[active]
    return Centroids(mixtures.mu[active], active.nonzero()[:, 0], weights, mixtures.var[active])
