"""OTC: class mixtures cultivated by optimal transport (Tran et al., CVPR 2026, arXiv 2211.16780).

Every class c is a Gaussian mixture Q_c = sum_k pi_kc N(mu_kc, diag(sigma_kc^2)) in latent space.
For every stream batch X with a replay batch X_bar (Algorithm 1 of the paper):

    step 0   cross-entropy on X u X_bar
    step 1   MMOT: the mixtures of the classes present follow their features (`ocil.mixture`)
    step 2   Dynamic Preservation: features to their own centroids, away from all others
    step 3   the centroids choose what the memory keeps

and at test time d(x, c) = min_k Mahalanobis(f(x); mu_kc, sigma_kc) decides. It never reads a task
id and never needs the number of classes; only two options (`fit`, which puts EM in the place of
MMOT, and `refresh`, for several epochs a task) ask to be told where a task ends.

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
lets every centroid's closest points enter the memory, which floods it. How the mixtures classify
is in `otc_reading.py`, the settings are in `otc_settings.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ocil import losses
from ocil.learners.learner import Report
from ocil.learners.model import Headless, Model
from ocil.learners.otc_reading import MixtureReadouts, Wrapped, unit
from ocil.learners.otc_settings import PRESETS, OtcSettings, mixture_settings
from ocil.memory import admission, policies
from ocil.mixture import FittedMixtures, Mixtures
from ocil.mixture.inside import Inside
from ocil.mixture.whitening import PooledCovariance
from ocil.stream import Batch


class Otc(MixtureReadouts):
    method = "otc"
    title = "Mixtures cultivated by optimal transport"
    paper = "Tran et al., An Optimal Transport-driven Approach for Cultivating Latent Space"
    year = 2026
    needs_memory = True
    memory_policy = "centroids, which choose as many as a reservoir admits"
    own_readout = "similarity"
    settings_type = OtcSettings
    presets = PRESETS

    def __init__(self, settings: OtcSettings, *given: Any) -> None:
        super().__init__(settings, *given)
        dim = self.model.head.features
        kind = mixture_settings(settings, fixed=not self.model.heads)
        form = Mixtures if settings.fit == "follow" else FittedMixtures
        self.mixtures = form(dim, kind, device=self.device)
        self.needs_tasks = settings.refresh or settings.fit == "task"
        self.pooled = PooledCovariance(dim, settings.pooling, settings.ridge, self.device)
        self.inside = Inside(self.mixtures)
        self.gradient_steps += self.preserves_apart
        own = {"mixtures": self.mixtures, "pooled": self.pooled, "inside": self.inside}
        self.parts |= {name: Wrapped(part) for name, part in own.items()}

    def build_model(self, net: torch.nn.Module) -> Model:
        """Where the net has nothing to train (`identity`, a frozen backbone): mixtures only."""
        fixed = not any(weight.requires_grad for weight in net.parameters())
        return (Headless if fixed else Model)(net, self.generators["init"])

    # ---------------------------------------------------------------- learning

    def step(self, batch: Batch) -> Report:
        if self.settings.schedule == "steps":
            self.drop_lr(batch, (0.7, 0.9))
        report = self.train(batch) if self.model.heads else self.follow(batch)
        if self.settings.fit == "refit" and (batch.step + 1) % self.settings.refit_every == 0:
            self.refit(*self.memory_without())
        return report

    def train(self, batch: Batch) -> Report:
        """Gradient steps, then the mixtures, then the memory."""
        x, y = batch.x, batch.y
        report = {}
        for _ in range(self.settings.steps):
            x, y = self.with_replay(batch)
            shown = self.augment_views(x, y, len(batch.y), self.settings.views)
            loss = self.joint_loss(*shown, len(batch.y) * self.settings.views, report)
            report["loss"] = self.optimizer_step(loss)
        z = self.cultivate(x, y, len(batch.y))
        if self.preserves_apart:
            self.backbone_images += len(x)
            features = F.normalize(self.model.net(self.augmented(x)), dim=1)
            self.optimizer_step(self.settings.preserve * self.preservation(features, y))
        self.admit(batch, z[len(z) - len(batch.y) :])
        return report

    @property
    def preserves_apart(self) -> bool:
        """Whether Dynamic Preservation has a pass and a gradient step of its own."""
        return self.settings.preserve > 0 and not self.settings.fused

    def grow(self, classes: int) -> None:
        """Where a class is new, old mixtures are measured from here on."""
        super().grow(classes)
        self.inside.new_classes(classes)

    @torch.no_grad()
    def follow(self, batch: Batch) -> Report:
        """Features that never change: the mixtures learn the batch alone, nothing is replayed."""
        self.backbone_images += len(batch.y)
        z = unit(self.encode(self.latent, batch.x))
        self.inside.arrive(z, batch.y.to(self.device))
        self.move(z, batch.y)
        self.admit(batch, z)
        return {}

    def joint_loss(
        self, x: torch.Tensor, y: torch.Tensor, fresh: int, report: Report
    ) -> torch.Tensor:
        """Cross-entropy, and in the fused form Dynamic Preservation of the same features.

        The last `fresh` images are the stream's.
        """
        self.backbone_images += len(x)
        features = self.model.net(x)
        logits = self.model.head(features)
        loss = self.cross_entropy(logits, y, len(y) - fresh)
        if self.settings.distill and self.average:
            self.backbone_images += len(x)
            with torch.no_grad():
                teacher = self.average.model(x)
            loss = loss + self.settings.distill * losses.distillation(logits, teacher, 4.0)
        if self.settings.fused and self.settings.preserve:
            pulled = self.preservation(F.normalize(features, dim=1), y)
            report["preservation"] = pulled.detach()
            loss = loss + self.settings.preserve * pulled
        return loss

    def cross_entropy(self, logits: torch.Tensor, y: torch.Tensor, old: int) -> torch.Tensor:
        """Mean over all images; asymmetric: the stream's, after `old` replayed, among their own."""
        if not self.settings.asymmetric:
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
        if self.settings.preserve_form == "balanced":
            return losses.balanced_preservation(z, y, mu, active, self.settings.tau)
        form = self.settings.preserve_features
        return losses.dynamic_preservation(z, y, mu, active, self.settings.tau, form)

    @torch.no_grad()
    def cultivate(self, x: torch.Tensor, y: torch.Tensor, fresh: int) -> torch.Tensor:
        """MMOT on the unit features (n, d) of the raw images it sees, which are returned.

        Those are the last `fresh`, the stream's, and of the replayed ones before them `watched`.
        """
        old = len(y) - fresh
        if 0 < self.settings.watched < old:
            draw = self.generators["method"]
            seen = [*policies.evenly(old, self.settings.watched, draw), *range(old, len(y))]
            x, y = x[seen], y[seen]
        self.backbone_images += len(x)
        z = F.normalize(self.encode(self.latent, x), dim=1)
        self.inside.arrive(z[-fresh:], y[-fresh:])
        self.move(z, y)
        return z

    def move(self, z: torch.Tensor, y: torch.Tensor) -> None:
        """Move the mixtures, and where a net is trained the shared covariance, by features z."""
        self.mixtures.update(z, y, self.generators["method"])
        if self.model.heads:
            nearest = self.mixtures.own_distances(z, y).argmin(1, keepdim=True)
            mu = torch.take_along_dim(self.mixtures.mu[y], nearest[:, :, None], 1)[:, 0]
            self.pooled.update(z - mu)

    def admit(self, batch: Batch, z: torch.Tensor) -> None:
        """Offer the batch to the memory; z (n, d) are its features."""
        if batch.epoch and not self.settings.reoffer:
            return
        draw, memory, n = self.generators["memory"], self.memory, len(batch.y)
        flood = (
            self.settings.admission == "flood"
        )  # as printed: each centroid's closest points enter
        slots = [] if flood else policies.reservoir(memory.seen, memory.capacity, n, draw)
        # Drawn for every choice: only which points enter may depend on it, not what is drawn next.
        start = int(torch.randint(2**31, (), generator=draw))
        if flood:
            order, labels = self._wanted(batch, z, start), batch.y.tolist()
            slots = admission.flood(memory, order, labels, self.settings.components, draw)
        elif self.settings.choice != "random":
            slots = admission.in_order(slots, self._wanted(batch, z, start))
        memory.seen += n
        memory.write(slots, batch.x, batch.y)

    def _wanted(self, batch: Batch, z: torch.Tensor, start: int) -> list[int]:
        distances = self.mixtures.own_distances(z, batch.y)
        if (
            self.settings.choice == "components"
        ):  # whose turn it is counts, not how close a point is
            mine = distances.argmin(1, keepdim=True)
            noise = torch.rand(len(z), 1, generator=self.generators["method"])
            distances = torch.full_like(distances, torch.inf).scatter_(1, mine, noise.to(z))
        return policies.by_centroids(distances.tolist(), batch.y.tolist(), start)

    # ---------------------------------------------------------------- from all that is at hand

    def memory_without(self, without: Sequence[int] = ()) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and class ids (n,) in the memory, but for some classes."""
        labels = self.memory.labels
        kept = self.memory.read([i for i, c in enumerate(labels) if c not in without])
        return kept["x"], kept["y"]

    def end_task(self, task: int, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Told of it if `fit` or `refresh` ask for it; images are those of the task."""
        if isinstance(self.mixtures, FittedMixtures) and not self.settings.refresh:
            first = self.mixtures.fitted[labels] == 0
            self.refit(images[first], labels[first])
            return
        x, y = self.memory_without(labels.unique().tolist())
        x, y = torch.cat([images, x.cpu()]), torch.cat([labels, y.cpu()])
        (self.refit if isinstance(self.mixtures, FittedMixtures) else self.refresh)(x, y)

    @torch.no_grad()
    def refit(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Batch EM for the classes y (n,) of the images x."""
        assert isinstance(self.mixtures, FittedMixtures)
        self.backbone_images += len(y)
        self.mixtures.fit(unit(self.encode(self.latent, x)), y, self.generators["method"])

    @torch.no_grad()
    def refresh(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Mixtures and shared covariance once more through the images x of classes y (n,).

        In random order and as many a step as a batch has with its replay. The fresh features push
        out as many old ones as there are: all of a class with many images at hand, and few of one
        with a handful, which knows more from what it saw before.
        """
        self.backbone_images += len(y)
        z, y = unit(self.encode(self.latent, x)), y.to(self.device)
        order = torch.randperm(len(y), generator=self.generators["method"]).to(self.device)
        for part in order.split(self.settings.batch + self.settings.replay):
            self.move(z[part], y[part])
