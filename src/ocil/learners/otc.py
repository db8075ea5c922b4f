"""OTC: class mixtures cultivated by optimal transport (Tran et al., CVPR 2026, arXiv 2211.16780).

Every class c is a Gaussian mixture Q_c = sum_k pi_kc N(mu_kc, diag(sigma_kc^2)) in latent space.
For every stream batch X with a replay batch X_bar (Algorithm 1 of the paper):

    step 0   cross-entropy on X u X_bar
    step 1   MMOT: the mixtures of the classes present follow their features (`ocil.mixture`)
    step 2   Dynamic Preservation: features to their own centroids, away from all others
    step 3   the centroids choose what the memory keeps

and at test time d(x, c) = min_k Mahalanobis(f(x); mu_kc, sigma_kc) decides. It never reads a task
id and never needs the number of classes.

| symbol      | here                     | meaning                                       |
|-------------|--------------------------|-----------------------------------------------|
| f_theta     | model.net                | feature extractor                             |
| theta_bar   | average.model            | averaged weights: the mixtures' latent space  |
| K           | settings.components      | centroids a class                             |
| mu, sigma^2 | mixtures.mu, .var        | centroids and variances (C, K, d)             |
| tau         | settings.tau             | temperature of Dynamic Preservation           |

Ours by default: cross-entropy and Dynamic Preservation share one pass (`fused`), and the mixtures
see un-augmented images through the averaged weights in eval mode. Preset `paper` takes what the
paper prints wherever it says something; `paper-literal` also pairs one sample with one point and
lets every centroid's closest points enter the memory, which floods it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F

from ocil import losses
from ocil.learners.learner import Learner, Reader
from ocil.learners.model import Model
from ocil.learners.state import below
from ocil.memory import policies
from ocil.mixture import Mixtures, MixtureSettings
from ocil.settings import Settings
from ocil.stream import Batch


@dataclass(frozen=True)
class OtcSettings(Settings):
    components: int = 4
    """Centroids a class (K)."""
    objective: Literal["sinkhorn", "dual", "debiased", "nll", "em", "batch-em"] = "sinkhorn"
    """What moves the mixtures: dual is the paper's, sinkhorn ours, nll and em its rivals."""
    pairing: Literal["all", "one"] = "all"
    """Objective dual: all pairs of samples and points, or one sample a point."""
    queue: int = 64
    """Latest features kept a class, for the objectives that use them."""
    window: int = 16
    """Update from this many latest features of a class; 0 from those of the batch alone."""
    shrinkage: float = 0.9
    """Share of the pooled variance in every component's, when reading."""
    preserve: float = 0.5
    """Weight of Dynamic Preservation; 0 leaves it out."""
    preserve_form: Literal["balanced", "printed"] = "balanced"
    """Ours, with positives and equal classes, or the paper's formula."""
    preserve_features: Literal["one", "mean", "sum"] = "mean"
    """Printed form: one sample, the mean or the sum of each other class's features."""
    tau: float = 0.2
    """Temperature of Dynamic Preservation."""
    fused: bool = True
    """One pass for cross-entropy and Dynamic Preservation, or a pass for each."""
    distill: float = 0.0
    """Weight of distillation from the averaged weights."""
    choice: Literal["centroids", "random"] = "centroids"
    """Which points of a batch enter the memory."""
    admission: Literal["reservoir", "flood"] = "reservoir"
    """How many enter: as many as a reservoir would take, or one for every centroid (printed)."""


PAPER = {
    "objective": "dual",
    "window": 0,
    "preserve_form": "printed",
    "preserve_features": "one",
    "preserve": 1.0,
    "fused": False,
    "shrinkage": 0.0,
    "ema": 0.0,
    "readout": "mahalanobis",
    "retrieval": "uniform",
}


class Otc(Learner):
    method = "otc"
    title = "Mixtures cultivated by optimal transport"
    paper = "Tran et al., An Optimal Transport-driven Approach for Cultivating Latent Space"
    year = 2026
    settings_type = OtcSettings
    presets = {  # noqa: RUF012
        "default": {"retrieval": "balanced"},
        # chosen on held-out training images: study tune-otc-digits
        "default/digits": {
            "lr": 4e-3,
            "ema": 0.9,
            "preserve": 0.25,
            "tau": 0.1,
            "readout": "log-density",
        },
        "paper": PAPER,
        "paper-literal": PAPER | {"pairing": "one", "admission": "flood"},
    }

    def __init__(self, settings: Settings, *rest: Any) -> None:
        assert isinstance(settings, OtcSettings)
        self.otc = settings
        super().__init__(settings, *rest)
        kind = MixtureSettings(
            objective=settings.objective,
            components=settings.components,
            pairing=settings.pairing,
            queue=settings.queue,
            window=settings.window,
            shrinkage=settings.shrinkage,
        )
        self.mixtures = Mixtures(self.model.head.features, kind, device=self.device)

    @property
    def latent(self) -> Model:
        """The weights whose features the mixtures describe."""
        return self.average.model if self.average else self.model

    # ---------------------------------------------------------------- learning

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        self.meet(batch.y)
        x, y = batch.x, batch.y
        report = {}
        for _ in range(self.settings.steps):
            x, y = self.with_replay(batch)
            loss = self.joint_loss(self.augmented(x), y, report)
            self.descend(loss)
            report["loss"] = loss.detach()
        z = self.cultivate(x, y)
        if not self.otc.fused and self.otc.preserve:
            self.backbone_images += len(x)
            features = F.normalize(self.model.net(self.augmented(x)), dim=1)
            self.descend(self.otc.preserve * self.preservation(features, y))
        self.remember(batch, z[len(z) - len(batch.y) :])
        return report

    def joint_loss(
        self, x: torch.Tensor, y: torch.Tensor, report: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Cross-entropy, and in the fused form Dynamic Preservation of the same features."""
        self.backbone_images += len(x)
        features = self.model.net(x)
        logits = self.model.head(features)
        loss = F.cross_entropy(logits, y)
        if self.otc.distill and self.average:
            self.backbone_images += len(x)
            with torch.no_grad():
                teacher = self.average.model(x)
            loss = loss + self.otc.distill * losses.distillation(logits, teacher, 4.0)
        if self.otc.fused and self.otc.preserve:
            pulled = self.preservation(F.normalize(features, dim=1), y)
            report["preservation"] = pulled.detach()
            loss = loss + self.otc.preserve * pulled
        return loss

    def preservation(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Dynamic Preservation of unit features z (n, d); 0 while there are no centroids."""
        if len(self.mixtures) < self.classes:
            self.mixtures.store.grow(self.classes)
        mu, active = F.normalize(self.mixtures.mu, dim=2), self.mixtures.active
        if self.otc.preserve_form == "balanced":
            return losses.balanced_preservation(z, y, mu, active, self.otc.tau)
        form = self.otc.preserve_features
        return losses.dynamic_preservation(z, y, mu, active, self.otc.tau, form)

    @torch.no_grad()
    def cultivate(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """MMOT on the unit features (n, d) of the raw images, which are returned."""
        self.backbone_images += len(x)
        z = F.normalize(self.features(self.latent, x), dim=1)
        self.mixtures.update(z, y, self.generators["method"])
        return z

    def remember(self, batch: Batch, z: torch.Tensor) -> None:
        """Offer the batch to the memory; z (n, d) are its features."""
        assert self.memory is not None
        draw, memory, n = self.generators["memory"], self.memory, len(batch.y)
        if self.otc.admission == "flood":
            self._flood(batch, z)
            return
        slots = policies.reservoir(memory.seen, memory.capacity, n, draw)
        memory.seen += n
        if self.otc.choice == "centroids":
            order = self._wanted(batch, z)
            taken = [slot for slot in slots if slot >= 0]
            slots = [-1] * n
            for item, slot in zip(order, taken, strict=False):
                slots[item] = slot
        memory.write(slots, batch.x, batch.y)

    def _wanted(self, batch: Batch, z: torch.Tensor) -> list[int]:
        distances = self.mixtures.own_distances(z, batch.y).tolist()
        return policies.by_centroids(distances, batch.y.tolist())

    def _flood(self, batch: Batch, z: torch.Tensor) -> None:
        """As printed: each centroid's closest points enter; when full, random old ones leave."""
        assert self.memory is not None
        memory, labels = self.memory, batch.y.tolist()
        left = dict.fromkeys(labels, self.otc.components)
        entering = []
        for item in self._wanted(batch, z):
            if left[labels[item]]:
                left[labels[item]] -= 1
                entering.append(item)
        slots = [-1] * len(labels)
        free = list(range(len(memory), min(memory.capacity, len(memory) + len(entering))))
        more = len(entering) - len(free)
        victims = policies.uniform(len(memory), more, self.generators["memory"]) if more else []
        for item, slot in zip(entering, free + victims, strict=False):
            slots[item] = slot
        memory.seen += len(labels)
        memory.write(slots, batch.x, batch.y)

    # ---------------------------------------------------------------- reading

    def readers(self) -> dict[str, tuple[Model, Reader]]:
        mine: dict[str, Reader] = {
            "mahalanobis": lambda _, z: -self.mixtures.class_distances(_unit(z)),
            "mahalanobis-1": lambda _, z: (
                -self.mixtures.mahalanobis(_unit(z), merged=True)[:, :, 0]
            ),
            "euclidean": lambda _, z: -self.mixtures.euclidean(_unit(z)).amin(2),
            "log-density": lambda _, z: self.mixtures.log_density(_unit(z)),
            "similarity": self.read_similarity,
        }
        return super().readers() | {name: (self.latent, read) for name, read in mine.items()}

    def read_similarity(self, _: Model, features: torch.Tensor) -> torch.Tensor:
        """log sum_k exp(f(x).mu_kc / tau), what Dynamic Preservation trains."""
        mu = F.normalize(self.mixtures.mu, dim=2)
        scores = torch.einsum("nd,ckd->nck", _unit(features), mu) / self.otc.tau
        return scores.masked_fill(~self.mixtures.active, -torch.inf).logsumexp(2)

    # ---------------------------------------------------------------- state

    @property
    def extra_bytes(self) -> int:
        return super().extra_bytes + self.mixtures.nbytes

    def state_dict(self) -> dict[str, torch.Tensor]:
        mine = {f"mixtures.{k}": v for k, v in self.mixtures.state_dict().items()}
        return super().state_dict() | mine

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.mixtures.load_state_dict(below(state, "mixtures."))


def _unit(features: torch.Tensor) -> torch.Tensor:
    return F.normalize(features, dim=1)
