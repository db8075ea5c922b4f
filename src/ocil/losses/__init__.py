"""Losses that several methods share, as pure functions of features, logits and labels.

What one method alone has is in its file.
"""

from ocil.losses.contrastive import contrast, supervised_contrastive
from ocil.losses.cross_entropy import (
    asymmetric_cross_entropy,
    distillation,
    present,
    restricted_cross_entropy,
)
from ocil.losses.preservation import (
    balanced_preservation,
    dynamic_preservation,
    first_of_each,
    preservation_loss,
)

__all__ = [
    "asymmetric_cross_entropy", "balanced_preservation", "contrast", "distillation",
    "dynamic_preservation", "first_of_each", "present", "preservation_loss",
    "restricted_cross_entropy", "supervised_contrastive",
]  # fmt: skip
