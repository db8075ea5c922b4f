"""Losses as pure functions of features, logits, labels and centroids: one file a family."""

from ocil.losses.bias import bias_corrected, fit_bias, most_confident
from ocil.losses.contrastive import contrast, supervised_contrastive
from ocil.losses.cross_entropy import (
    asymmetric_cross_entropy,
    present,
    restricted_cross_entropy,
    weighted_cross_entropy,
)
from ocil.losses.experts import reverse_distillation
from ocil.losses.geodesic import geodesic_distillation
from ocil.losses.gradient_balance import adaptive_weights, gradient_masses
from ocil.losses.mixup import mixed_cross_entropy
from ocil.losses.noise_contrastive import holistic_scores, infonce, paired_infonce
from ocil.losses.preservation import (
    balanced_preservation,
    dynamic_preservation,
    first_of_each,
    preservation_loss,
)
from ocil.losses.prototypes import batch_prototypes, prototype_equilibrium
from ocil.losses.proxy import others_logsumexp, pseudo_prototypical_proxy
from ocil.losses.relation import relation_distillation
from ocil.losses.replay import stored_logits
from ocil.losses.shapley import adversarial_shapley, knn_shapley
from ocil.losses.soft_targets import distillation

__all__ = [
    "adaptive_weights",
    "adversarial_shapley",
    "asymmetric_cross_entropy",
    "balanced_preservation",
    "batch_prototypes",
    "bias_corrected",
    "contrast",
    "distillation",
    "dynamic_preservation",
    "first_of_each",
    "fit_bias",
    "geodesic_distillation",
    "gradient_masses",
    "holistic_scores",
    "infonce",
    "knn_shapley",
    "mixed_cross_entropy",
    "most_confident",
    "others_logsumexp",
    "paired_infonce",
    "present",
    "preservation_loss",
    "prototype_equilibrium",
    "pseudo_prototypical_proxy",
    "relation_distillation",
    "restricted_cross_entropy",
    "reverse_distillation",
    "stored_logits",
    "supervised_contrastive",
    "weighted_cross_entropy",
]
