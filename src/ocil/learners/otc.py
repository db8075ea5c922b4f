"""OTC: class mixtures cultivated by optimal transport (Tran et al., CVPR 2026, arXiv 2211.16780).

Every class c is a Gaussian mixture Q_c = sum_k pi_kc N(mu_kc, diag(sigma_kc^2)) in latent space.
`Otc.step` is Algorithm 1 of the paper, for a stream batch X with a replay batch X_bar:

    step 0   cross-entropy on X u X_bar
    step 1   MMOT: the mixtures of the classes present follow their features (`ocil.mixture`)
    step 2   Dynamic Preservation: features to their own centroids, away from all others
    step 3   the centroids choose what the memory keeps

and at test time d(x, c) = min_k Mahalanobis(f(x); mu_kc, sigma_kc) decides.

| symbol      | here                     | meaning                                       |
|-------------|--------------------------|-----------------------------------------------|
| f_theta     | model.net                | feature extractor (averaged: average.model)   |
| mu, sigma^2 | mixtures.mu, .var        | centroids and variances (C, K, d)             |

Preset `paper` is this to the letter (docs/paper.md). Ours by default: step 2 is part of step 0
(`fused`), another objective moves the mixtures, and they describe the averaged weights.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ocil import losses, nets
from ocil.learners import otc_fits
from ocil.learners.learner import Report
from ocil.learners.otc_readouts import MixtureReader
from ocil.learners.otc_settings import DROPS, PRESETS, TITLE, OtcSettings
from ocil.memory import admission, policies
from ocil.mixture import Diagnostics, Mixtures, PooledCovariance
from ocil.stream import Batch


class Otc(MixtureReader):
    method = "otc"
    title = "Mixtures cultivated by optimal transport"
    paper = f"Tran et al., {TITLE}"
    year = 2026
    needs_memory = True
    memory_policy = "centroids, which choose as many as a reservoir admits"
    own_readout = "similarity"
    settings_type = OtcSettings
    presets = PRESETS

    def __new__(cls, settings: OtcSettings | None = None, *_: Any) -> Otc:
        from ocil.learners.otc_frozen import FrozenOtc

        frozen = cls is Otc and settings is not None and nets.is_frozen(settings.net)
        return object.__new__(FrozenOtc if frozen else cls)

    def __init__(self, settings: OtcSettings, *rest: Any) -> None:
        super().__init__(settings, *rest)
        self.needs_tasks = settings.refresh or settings.objective == "task-em"
        self.preserves_apart = settings.preserve > 0 and not settings.fused
        self.gradient_steps += self.preserves_apart
        self.mixtures = Mixtures(self.model.head.features, settings, device=self.device)
        self.pooled = PooledCovariance(self.mixtures.dim, self.device)
        self.inside = Diagnostics(self.mixtures)
        self.parts |= {"mixtures": self.mixtures, "pooled": self.pooled, "inside": self.inside}

    def grow(self, classes: int) -> None:
        super().grow(classes)
        self.inside.new_classes(classes)

    def step(self, batch: Batch) -> Report:
        """Algorithm 1."""
        s, fresh, report = self.settings, len(batch.y), {}
        x, y = self.with_replay(batch)
        self.drop_lr(batch, DROPS[s.schedule])
        for update in range(self.updates):  # step 0
            if update and s.redraw:
                x, y = self.with_replay(batch)
            shown, labels = self.augment_views(x, y, fresh, s.views)
            loss = self.joint_loss(shown, labels, len(labels) - fresh * s.views, report)
            report["loss"] = self.optimizer_step(loss)
        z = self.mmot(x, y, fresh)  # step 1
        if self.preserves_apart:  # step 2
            self.backbone_images += len(x)
            features = self.model.net(self.augmented(x))
            self.optimizer_step(s.preserve * self.preservation(features, y))
        self.fill_memory(batch, z[len(z) - fresh :])  # step 3
        return report

    def joint_loss(self, x: Tensor, y: Tensor, old: int, report: Report) -> Tensor:
        """Of augmented images x, the first `old` replayed; if fused with Dynamic Preservation."""
        s = self.settings
        self.backbone_images += len(x)
        features = self.model.net(x)
        logits = self.model.head(features)
        loss = F.cross_entropy(logits, y)
        if s.asymmetric:
            loss = losses.asymmetric_cross_entropy(logits, y, old)
        if s.distill and self.average:
            self.backbone_images += len(x)
            with torch.no_grad():
                teacher = self.average.model(x)
            loss = loss + s.distill * losses.distillation(logits, teacher, 4.0)
        if s.fused and s.preserve:
            pulled = self.preservation(features, y)
            report["preservation"] = pulled.detach()
            loss = loss + s.preserve * pulled
        return loss

    def rehearsal_loss(self, x: Tensor, y: Tensor) -> Tensor:
        return self.joint_loss(x, y, len(y), {})

    def rehearsed(self) -> None:
        otc_fits.refresh(self, *self.memory_items())

    def preservation(self, features: Tensor, y: Tensor) -> Tensor:
        """Dynamic Preservation of features (n, d); 0 while there are no centroids."""
        s, z, m = self.settings, self.scaled(features), self.mixtures
        m.store.grow(self.classes)
        how = s.tau, s.preserve_form, self.generators["method"]
        return losses.preservation_loss(z, y, m.mu, m.active, *how)

    @torch.no_grad()
    def mmot(self, x: Tensor, y: Tensor, fresh: int) -> Tensor:
        """Features (n, d) of raw images, the last `fresh` the stream's; they move the mixtures."""
        old, some = len(y) - fresh, self.settings.mixture_replay
        if some != "all" and some < old:
            drawn = policies.systematic_sample(old, some, self.generators["method"])
            x, y = (part[[*drawn, *range(old, len(part))]] for part in (x, y))
        self.backbone_images += len(x)
        z = self.encode_latent(x)
        self.inside.arrive(z[-fresh:], y[-fresh:])
        self.update_mixtures(z, y)
        return z

    def update_mixtures(self, z: Tensor, y: Tensor) -> None:
        """By unit features z (n, d) of classes y (n,); with them the covariance all share."""
        self.mixtures.update(z, y, self.generators["method"])
        self.pooled.update(self.mixtures.residuals(z, y))

    def fill_memory(self, batch: Batch, z: Tensor) -> None:
        """Offer the batch, whose features are z (n, d), to the memory; refit what is due."""
        s = self.settings
        if not batch.epoch or s.offer_every_epoch:
            y = batch.y.tolist()
            far = self.mixtures.own_distances(z, batch.y).tolist() if s.asks_centroids else []
            slots = admission.choose(self.memory, far, y, s.choice, s.admission, self.generators)
            self.memory.seen += len(y)
            self.memory.write(slots, batch.x, batch.y)
        if s.objective == "refit-em" and (batch.step + 1) % s.em.every == 0:
            otc_fits.refit(self, *self.memory_items())

    def end_task(self, task: int, images: Tensor, labels: Tensor) -> None:
        otc_fits.end_task(self, images, labels)

    def correct(self, x: Tensor, y: Tensor, new: Tensor | None = None) -> None:
        super().correct(x, y, new)
        self.mixtures.store.grow(self.classes)  # a class that is new has no points yet
