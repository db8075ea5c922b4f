"""OTC's mixtures from all that is at hand: batch EM at chosen moments, a refresh after a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ocil.mixture.refit import Refit

if TYPE_CHECKING:
    from ocil.learners.otc import Otc


def end_task(otc: Otc, images: Tensor, labels: Tensor) -> None:
    """Told of it by objective task-em or `refresh`; images are those of the task."""
    mover = otc.mixtures.mover
    if isinstance(mover, Refit) and not otc.settings.refresh:
        first = mover.fitted[labels] == 0
        refit(otc, images[first], labels[first])
        return
    present = set(labels.tolist())
    kept = otc.memory.read([i for i, c in enumerate(otc.memory.labels) if c not in present])
    x, y = torch.cat([images, kept["x"].cpu()]), torch.cat([labels, kept["y"].cpu()])
    (refit if isinstance(mover, Refit) else refresh)(otc, x, y)


@torch.no_grad()
def refit(otc: Otc, x: Tensor, y: Tensor) -> None:
    """Batch EM for the classes y (n,) of the images x."""
    assert isinstance(otc.mixtures.mover, Refit)
    otc.backbone_images += len(y)
    otc.mixtures.mover.fit(otc.encode_latent(x), y, otc.generators["method"])


@torch.no_grad()
def refresh(otc: Otc, x: Tensor, y: Tensor) -> None:
    """Mixtures and shared covariance once more through the images x of classes y (n,).

    In random order and as many a step as a batch has with its replay. The fresh features push out
    as many old ones as there are: all of a class with many images at hand, and few of one with a
    handful, which knows more from what it saw before.
    """
    otc.backbone_images += len(y)
    z, y = otc.encode_latent(x), y.to(otc.device)
    order = torch.randperm(len(y), generator=otc.generators["method"]).to(otc.device)
    for part in order.split(otc.settings.batch + otc.settings.replay):
        otc.update_mixtures(z[part], y[part])
