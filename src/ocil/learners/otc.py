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

from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
import torch.nn.functional as F

from ocil import losses
from ocil.learners.learner import Learner, Reader
from ocil.learners.model import Headless, Model
from ocil.learners.state import below
from ocil.memory import policies
from ocil.mixture import Mixtures, MixtureSettings
from ocil.mixture.inside import Inside
from ocil.mixture.whitening import PooledCovariance
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
    seed_points: int = 0
    """Points from which a class has K components, one Gaussian before; 0 is 16, or the whole queue
    where the features never change."""
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
    asymmetric: bool = False
    """Cross-entropy of stream images over the classes of their batch only, as in ER-ACE."""
    fused: bool = True
    """One pass for cross-entropy and Dynamic Preservation, or a pass for each."""
    distill: float = 0.0
    """Weight of distillation from the averaged weights."""
    choice: Literal["random", "centroids", "components"] = "random"
    """Which points of a batch enter the memory: any, those closest to a centroid (the paper), or
    any with the components taking turns."""
    admission: Literal["reservoir", "flood"] = "reservoir"
    """How many enter: as many as a reservoir would take, or one for every centroid (printed)."""
    horizon: float = 512.0
    """Points older than the window that count in a class's moments."""
    drift: float = 1.5
    """Older points lose mass when means move by more than this many times chance; 0 never."""
    relax: float = 0.5
    """Objective sinkhorn: column marginal of the plan, 0 free (EM's posterior), 1 fixed to pi."""
    eps: float = 1.0
    """Entropic regularisation: of the plan, or per dimension of the dual's cost."""
    cost: Literal["mahalanobis", "euclidean"] = "mahalanobis"
    """Objective dual: cost between a point and a sample."""
    samples: int = 0
    """Objective dual: samples a class and step (S); 0 as many as points."""
    temperature: float = 0.5
    """Objective dual: temperature of Gumbel-Softmax."""
    hard: bool = False
    """Objective dual: straight-through one-hot samples instead of soft ones."""
    potential_steps: int = 3
    """Objective dual: ascent steps of the Kantorovich network (T_phi)."""
    descents: int = 1
    """Objectives dual, debiased, nll: descent steps on (pi, mu, sigma)."""
    floor: float = 1e-3
    """Least variance, as a share of the class's mean variance."""
    pooling: float = 0.01
    """Rate at which the covariance shared by all components follows the features."""
    ridge: float = 0.1
    """Share of the identity in that covariance, for read-out mahalanobis-full."""


PAPER = {
    "choice": "centroids",
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
    needs_memory = True
    keeps = "reservoir, chosen by the centroids"
    own_readout = "similarity"
    settings_type = OtcSettings
    presets = {  # noqa: RUF012
        "default": {
            "retrieval": "balanced",
            "choice": "centroids",
            "distill": 1.0,
        },
        # chosen on held-out training images: study tune-otc-mnist
        "default/mnist": {"lr": 1e-3, "steps": 2},
        "default/fashion-mnist": {"lr": 1e-3, "steps": 2},  # MNIST's, not tuned
        # chosen on held-out training images: study tune-otc-digits
        "default/digits": {
            "lr": 4e-3,
            "ema": 0.9,
            "preserve": 0.25,
            "tau": 0.1,
            "distill": 0.0,
            "readout": "mahalanobis-full",
        },
        "paper": PAPER,
        "paper-literal": PAPER | {"pairing": "one", "admission": "flood"},
    }

    def __init__(self, settings: Settings, *rest: Any) -> None:
        assert isinstance(settings, OtcSettings)
        self.otc = settings
        super().__init__(settings, *rest)
        dim = self.model.head.features
        kind = mixture_settings(settings, fixed=not self.model.heads)
        self.mixtures = Mixtures(dim, kind, device=self.device)
        self.pooled = PooledCovariance(dim, settings.pooling, settings.ridge, self.device)
        self.inside = Inside(self.mixtures)

    def build_model(self, net: torch.nn.Module) -> Model:
        """Where the net has nothing to train (`identity`, a frozen backbone): mixtures only."""
        fixed = not any(weight.requires_grad for weight in net.parameters())
        return (Headless if fixed else Model)(net, self.generators["init"])

    @property
    def latent(self) -> Model:
        """The weights whose features the mixtures describe."""
        return self.average.model if self.average else self.model

    # ---------------------------------------------------------------- learning

    def learn(self, batch: Batch) -> dict[str, torch.Tensor]:
        if not self.model.heads:
            return self.follow(batch)
        known = self.classes
        self.meet(batch.y)
        if self.classes > known:
            self.inside.new_classes(self.classes)
        x, y = batch.x, batch.y
        report = {}
        for _ in range(self.settings.steps):
            x, y = self.with_replay(batch)
            loss = self.joint_loss(self.augmented(x), y, len(batch.y), report)
            self.descend(loss)
            report["loss"] = loss.detach()
        z = self.cultivate(x, y, len(batch.y))
        if not self.otc.fused and self.otc.preserve:
            self.backbone_images += len(x)
            features = F.normalize(self.model.net(self.augmented(x)), dim=1)
            self.descend(self.otc.preserve * self.preservation(features, y))
        self.remember(batch, z[len(z) - len(batch.y) :])
        return report

    @torch.no_grad()
    def follow(self, batch: Batch) -> dict[str, torch.Tensor]:
        """Features that never change: the mixtures learn the batch alone, nothing is replayed."""
        self.meet(batch.y)
        self.backbone_images += len(batch.y)
        z = _unit(self.features(self.latent, batch.x))
        self.mixtures.update(z, batch.y, self.generators["method"])
        self.remember(batch, z)
        return {}

    def joint_loss(
        self, x: torch.Tensor, y: torch.Tensor, fresh: int, report: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Cross-entropy, and in the fused form Dynamic Preservation of the same features.

        The last `fresh` images are the stream's.
        """
        self.backbone_images += len(x)
        features = self.model.net(x)
        logits = self.model.head(features)
        loss = self.cross_entropy(logits, y, len(y) - fresh)
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

    def cross_entropy(self, logits: torch.Tensor, y: torch.Tensor, old: int) -> torch.Tensor:
        """Mean over all images; asymmetric: the stream's, after `old` replayed, among their own."""
        if not self.otc.asymmetric:
            return F.cross_entropy(logits, y)
        among = losses.present(y[old:], self.classes)
        fresh = losses.restricted_cross_entropy(logits[old:], y[old:], among)
        replayed = F.cross_entropy(logits[:old], y[:old]) if old else fresh
        return torch.lerp(fresh, replayed, old / len(y))

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
    def cultivate(self, x: torch.Tensor, y: torch.Tensor, fresh: int) -> torch.Tensor:
        """MMOT on the unit features (n, d) of the raw images, which are returned."""
        self.backbone_images += len(x)
        z = F.normalize(self.features(self.latent, x), dim=1)
        self.inside.arrive(z[-fresh:], y[-fresh:])
        self.mixtures.update(z, y, self.generators["method"])
        nearest = self.mixtures.own_distances(z, y).argmin(1, keepdim=True)
        mu = torch.take_along_dim(self.mixtures.mu[y], nearest[:, :, None], 1)[:, 0]
        self.pooled.update(z - mu)
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
        if self.otc.choice != "random":
            order = self._wanted(batch, z)
            taken = [slot for slot in slots if slot >= 0]
            slots = [-1] * n
            for item, slot in zip(order, taken, strict=False):
                slots[item] = slot
        memory.write(slots, batch.x, batch.y)

    def _wanted(self, batch: Batch, z: torch.Tensor) -> list[int]:
        distances = self.mixtures.own_distances(z, batch.y)
        if self.otc.choice == "components":  # whose turn it is counts, not how close a point is
            mine = distances.argmin(1, keepdim=True)
            noise = torch.rand(len(z), 1, generator=self.generators["memory"])
            distances = torch.full_like(distances, torch.inf).scatter_(1, mine, noise.to(z))
        start = int(torch.randint(2**31, (), generator=self.generators["memory"]))
        return policies.by_centroids(distances.tolist(), batch.y.tolist(), start)

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
            "mahalanobis-full": self.read_full,
            "euclidean": lambda _, z: -self.mixtures.euclidean(_unit(z)).amin(2),
            "log-density": lambda _, z: self.mixtures.log_density(_unit(z)),
            "similarity": self.read_similarity,
        }
        if not self.model.heads:  # nor is there a covariance where nothing is trained
            del mine["mahalanobis-full"]
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
        distances = self.pooled.distances(_unit(features), self.mixtures.mu)
        return -distances.masked_fill(~self.mixtures.active, torch.inf).amin(2)

    def read_similarity(self, _: Model, features: torch.Tensor) -> torch.Tensor:
        """log sum_k exp(f(x).mu_kc / tau), what Dynamic Preservation trains."""
        mu = F.normalize(self.mixtures.mu, dim=2)
        scores = torch.einsum("nd,ckd->nck", _unit(features), mu) / self.otc.tau
        return scores.masked_fill(~self.mixtures.active, -torch.inf).logsumexp(2)

    def look_inside(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        """Health of the mixtures at a task's end, with test images x (n, ...) of classes y."""
        kinds = {"test": (_unit(self.features(self.latent, x)), y.to(self.device))}
        if self.memory is not None and len(self.memory):
            kept = {
                name: column[: len(self.memory)] for name, column in self.memory.columns.items()
            }
            kinds["replayed"] = (_unit(self.features(self.latent, kept["x"])), kept["y"])
        return self.inside.describe(kinds)

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


def mixture_settings(settings: OtcSettings, fixed: bool = False) -> MixtureSettings:
    """The mixtures' settings among the learner's; two of them have names of their own here."""
    shared = {f.name for f in fields(MixtureSettings)} & {f.name for f in fields(OtcSettings)}
    given = {name: getattr(settings, name) for name in shared - {"memory", "steps"}}
    given["seed_points"] = settings.seed_points or (settings.queue if fixed else 16)
    return MixtureSettings(memory=settings.horizon, steps=settings.descents, **given)


def _unit(features: torch.Tensor) -> torch.Tensor:
    return F.normalize(features, dim=1)
