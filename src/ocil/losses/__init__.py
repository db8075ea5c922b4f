"""Losses as pure functions of features, logits, labels and centroids: one file a family."""

from ocil.losses.distillation import distillation
from ocil.losses.preservation import (
    FEATURE_TERMS,
    balanced_preservation,
    dynamic_preservation,
    first_of_each,
)

__all__ = [
    "FEATURE_TERMS",
    "balanced_preservation",
    "distillation",
    "dynamic_preservation",
    "first_of_each",
]
