"""All settings of the class mixtures in one frozen dataclass."""

from __future__ import annotations

from dataclasses import dataclass

from ocil.errors import OcilError, suggest

OBJECTIVES = ("sinkhorn", "dual", "debiased", "nll", "em", "batch-em")
_CHOICES = {
    "objective": OBJECTIVES,
    "average": ("window", "stepwise"),
    "seeding": ("spectral", "kmeans++", "random"),
    "cost": ("mahalanobis", "euclidean"),
    "pairing": ("all", "one"),
    "optimiser": ("adam", "sgd"),
}
_AT_LEAST = {
    "components": 1, "queue": 1, "window": 0, "drift": 0, "seed_points": 1, "memory": 0,
    "sinkhorn_steps": 0, "passes": 1,
    "restarts": 1, "prior": 0, "floor": 0, "samples": 0, "potential_steps": 0, "steps": 1,
    "hidden": 1, "shrinkage": 0, "relax": 0, "reseed_every": 0, "eps": 1e-6, "temperature": 1e-3,
}  # fmt: skip


@dataclass(frozen=True)
class MixtureSettings:
    """How each class's mixture is kept; units are relative, so the feature scale plays no part."""

    objective: str = (
        "sinkhorn"  # sinkhorn (ours) | dual (the paper) | debiased | nll | em | batch-em
    )
    components: int = 4  # K
    queue: int = 64  # latest latent points kept per class; also where a class is seeded from
    window: int = 16  # update from this many latest points; 0: from those of the batch alone
    average: str = "window"  # window: older points counted once; stepwise: S <- (1-r) S + r s
    memory: float = 512.0  # points older than the queue that count (the horizon under drift)
    drift: float = 1.5  # older points lose mass when means move by more than this many times chance
    rate_power: float = 0.6  # stepwise: r_t = (t + 2) ** -rate_power
    passes: int = 1  # E and M steps per update (batch-em: until its queue fits)
    eps: float = 1.0  # sinkhorn: temperature of the plan; dual, debiased: per dimension of cost
    sinkhorn_steps: int = 5  # iterations of the plan
    relax: float = 0.5  # column marginal of the plan: 0 free (EM's posterior), 1 fixed to pi
    potential_rate: float = 0.5  # relax = 1: pi_k <- pi_k exp(-rate g_k), g the column potential
    seeding: str = "spectral"  # spectral | kmeans++ | random points
    seed_points: int = 16  # a class is one Gaussian until it has this many points
    restarts: int = 4  # starts of k-means per seeding, the best is taken
    reseed_every: int = 256  # points between two challenges of a class's partition; 0 never
    reseed_margin: float = 0.2  # a challenger must lower the within-cluster scatter by this share
    prior: float = 1.0  # pseudo-points of the class's pooled variance in each component
    floor: float = 1e-3  # least variance, a share of the mean one (gradients: of all classes)
    shrinkage: float = 0.0  # at reading: v <- (1-a) v + a (variance pooled over all classes)
    cost: str = "mahalanobis"  # dual: with the sample's detached variance | euclidean
    pairing: str = "all"  # dual: all S x n pairs | one (one sample per point, as printed)
    samples: int = 0  # S per class; 0: as many as points in the batch (the paper)
    temperature: float = 0.5  # of Gumbel-Softmax
    hard: bool = False  # straight-through one-hot samples
    potential_steps: int = 3  # T_phi, ascent steps on the Kantorovich network
    steps: int = 1  # descent steps on (pi, mu, sigma)
    hidden: int = 64  # width of the Kantorovich network
    optimiser: str = "adam"  # one state per class, moved only when the class is in the batch
    rate_mu: float = 0.02  # in units of the class's rms sigma per step
    rate_sigma: float = 0.01  # of log sigma
    rate_pi: float = 0.02  # of the weight logits
    rate_phi: float = 0.01

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                hint = suggest(str(value), known)
                raise OcilError(f"{name} is '{value}'; choose one of {', '.join(known)}.{hint}")
        for name, least in _AT_LEAST.items():
            if not getattr(self, name) >= least:
                raise OcilError(f"{name} is {getattr(self, name)}; give at least {least}.")
        for name in ("relax", "shrinkage"):
            if getattr(self, name) > 1:
                raise OcilError(f"{name} is {getattr(self, name)}; give a share from 0 to 1.")
        if self.window > self.queue:
            raise OcilError(
                f"window is {self.window}; give at most the queue, {self.queue} points."
            )
        if not self.components <= self.seed_points <= self.queue:
            raise OcilError(
                f"seed_points is {self.seed_points}; it must lie between the {self.components} "
                f"components and the queue of {self.queue} points."
            )
