"""Settings and presets of OTC (otc.py)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from ocil.errors import OcilError
from ocil.learners.presets import on_colour
from ocil.mixture import MixtureSettings
from ocil.settings import Settings, setting


@dataclass(frozen=True)
class OtcSettings(Settings):
    components: int = 4
    """Centroids a class (K)."""
    objective: Literal["sinkhorn", "dual", "debiased", "nll", "em", "batch-em"] = "sinkhorn"
    """What moves the mixtures: dual is the paper's, sinkhorn ours, nll and em its rivals."""
    average: Literal["window", "stepwise"] = "window"
    """Objectives sinkhorn, em: older points count once each (window), or S <- (1-r) S + r s."""
    fit: Literal["follow", "task", "refit"] = "follow"
    """follow: the objective moves the mixtures at every step. Rivals, by batch EM: fitted once, at
    the end of a class's first task (task), or all anew from the memory every refit_every steps."""
    refit_every: int = setting(50, low=1)
    """Fit refit: steps between two fits."""
    em_passes: int = setting(20, low=1)
    """E and M steps of a fit by batch EM (I_EM)."""
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
    tau: float = setting(0.2, above=0)
    """Temperature of Dynamic Preservation."""
    asymmetric: bool = False
    """Cross-entropy of stream images over the classes of their batch only, as in ER-ACE."""
    fused: bool = True
    """One pass for cross-entropy and Dynamic Preservation, or a pass for each."""
    distill: float = 0.0
    """Weight of distillation from the averaged weights."""
    views: int = setting(1, low=1)
    """Views of each stream image in a gradient step; of several the last is not augmented."""
    watched: int = 0
    """Replayed images a batch whose features move the mixtures, beside the stream's; 0 is all."""
    choice: Literal["random", "centroids", "components"] = "random"
    """Which points of a batch enter the memory: any, those closest to a centroid (the paper), or
    any with the components taking turns."""
    admission: Literal["reservoir", "flood"] = "reservoir"
    """How many enter: as many as a reservoir would take, or one for every centroid (printed)."""
    reoffer: bool = True
    """With several epochs: offer an image to the memory in each, not in the first alone."""
    schedule: Literal["constant", "steps"] = "constant"
    """Learning rate over the epochs of a task; steps takes a tenth after 70 and after 90 %."""
    refresh: bool = False
    """At the end of a task, take the mixtures through its images and the memory once more."""
    horizon: float = 512.0
    """Points older than the window that count in a class's moments."""
    drift: float = 1.5
    """Older points lose mass when means move by more than this many times chance; 0 never."""
    relax: float = 0.5
    """Objective sinkhorn: column marginal of the plan, 0 free (EM's posterior), 1 fixed to pi."""
    eps: float = setting(1.0, above=0)
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
    descents: int = setting(1, low=1)
    """Objectives dual, debiased, nll: descent steps on (pi, mu, sigma)."""
    floor: float = setting(1e-3, high=1)
    """Least variance, as a share of the class's mean variance; of that of all classes for the
    objectives dual, debiased and nll."""
    reseed_every: int = 256
    """Points after which a fresh clustering of the queue may take a mixture's place; 0 never."""
    pooling: float = setting(0.01, high=1)
    """Rate at which the covariance shared by all components follows the features."""
    ridge: float = setting(0.1, high=1)
    """Share of the identity in that covariance, for read-out mahalanobis-full."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.admission == "flood" and self.choice == "random":
            raise OcilError(
                "With admission = 'flood' every centroid's closest points enter the memory, which "
                "leaves nothing to choose at random; set choice = 'centroids'."
            )
        if self.refresh and self.fit == "task":
            raise OcilError(
                "Setting refresh moves all mixtures at the end of a task and fit = 'task' fixes "
                "them there; choose one of the two."
            )


def mixture_settings(settings: OtcSettings, fixed: bool = False) -> MixtureSettings:
    """The mixtures' settings among the learner's; some of them have names of their own here."""
    shared = {f.name for f in fields(MixtureSettings)} & {f.name for f in fields(OtcSettings)}
    given = {name: getattr(settings, name) for name in shared - {"memory", "steps"}}
    given["seed_points"] = settings.seed_points or (settings.queue if fixed else 16)
    given |= {"memory": settings.horizon, "steps": settings.descents}
    if settings.fit != "follow":
        given |= {"objective": "em", "passes": settings.em_passes}
    elif settings.objective == "batch-em":  # nothing but the queue, fitted to the end
        given |= {"memory": 0.0, "window": settings.queue, "passes": settings.em_passes}
    return MixtureSettings(**given)


_OURS: dict[str, Any] = {"retrieval": "balanced", "choice": "centroids", "distill": 1.0}
_DIGITS = {
    "lr": 4e-3,
    "ema": 0.9,
    "preserve": 0.25,
    "tau": 0.1,
    "distill": 0.0,
    "readout": "mahalanobis-full",
}
_COLOUR = {"watched": 16, "readout": "euclidean"}
_PAPER = {
    "choice": "centroids",
    "objective": "dual",
    "window": 0,
    "reseed_every": 0,
    "preserve_form": "printed",
    "preserve_features": "one",
    "preserve": 1.0,
    "fused": False,
    "shrinkage": 0.0,
    "lr": 5e-4,
    "ema": 0.0,
    "readout": "mahalanobis",
    "retrieval": "uniform",
}
# Several epochs a task. Those that follow DER++ (derpp.py) have its epochs, batches, schedule,
# width and augmentation, its two draws of 32 replayed images made one of 64. Without stored
# logits there is nothing to gain from an image that is in the memory twice.
_OFFLINE = _OURS | {"refresh": True, "reoffer": False}
_AS_DERPP = {"batch": 32, "replay": 64, "epochs": 50, "augment": "partial", "width": 64}

PRESETS: dict[str, dict[str, Any]] = {
    "default": _OURS,
    # chosen on held-out training images: study tune-otc-mnist
    "default/mnist": {"lr": 1e-3, "steps": 2},
    "default/fashion-mnist": {"lr": 1e-3, "steps": 2},  # MNIST's, not tuned
    "default/digits": _DIGITS,  # chosen on held-out training images: study tune-otc-digits
    # chosen on held-out training images of CIFAR-10 (studies tune-otc-cifar10 and, at full length,
    # readout-cifar10), elsewhere untouched
    **on_colour("default", _COLOUR),
    "default/tiny-imagenet-20": _COLOUR,
    "offline": _OFFLINE,
    "offline/mnist": {"lr": 1e-3},
    "offline/fashion-mnist": {"lr": 1e-3},
    "offline/digits": _DIGITS,
    "offline/cifar10": _AS_DERPP,
    "offline/cifar100": _AS_DERPP | {"schedule": "steps"},
    "offline/tiny-imagenet": _AS_DERPP | {"epochs": 100, "classes_per_task": 20},
    "paper": _PAPER,
    "paper-literal": _PAPER | {"pairing": "one", "admission": "flood"},
}
