"""Gradient objectives: the paper's entropic dual (Algorithm 2), its debiased form, the likelihood.

All are losses of the mixtures of B classes at once, in coordinates relative to each class (centre
and rms sigma), with costs per dimension; so eps and the rates mean the same in every feature space:

    dual      J = E_p[phi] + E_q[phi~], T_phi ascents of phi, then descents of (pi, mu, sigma)
    debiased  W_eps(p, q) - W_eps(q, q') / 2, potentials from Sinkhorn
    nll       -E_p[log q]

p: the points of a class, q: S reparameterised samples of its mixture (Gumbel-Softmax: Jang, Gu,
Poole 2016 and Maddison, Mnih, Teh 2016). phi is one small network per class,
phi(z) = w2 . softplus(W1 z + b1), whose additive constant cancels. With one-to-one pairing phi
cancels altogether and J is the mean cost of the pairs: no network is trained then. A class with
one point is left alone by dual and debiased (phi would cancel there too).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from ocil.fields import setting
from ocil.mixture.kmeans import draw_gumbel
from ocil.mixture.moments import (
    Points,
    component_log_density,
    smallest_variance,
    variance_within,
)
from ocil.mixture.store import Ints
from ocil.mixture.transport import semidual, sinkhorn, squared_distances, uniform_log_weights

if TYPE_CHECKING:
    from ocil.mixture.mixtures import Mixtures

BETAS = (0.9, 0.99)
PLAN_STEPS = 5  # debiased: iterations of Sinkhorn
NETWORK = ("phi.w1", "phi.b1", "phi.w2")
MIXTURE = ("d.mu", "d.log_sigma", "d.log_pi")  # names of the optimiser's columns
_DUAL = {"objective": ("dual",)}
_WITH_PHI = {**_DUAL, "dual.pairing": ("all",)}
_SAMPLED = {"objective": ("dual", "debiased")}
_PAIRED = {**_SAMPLED, "dual.pairing": ("all",)}


@dataclass(frozen=True)
class DualSettings:
    pairing: Literal["all", "one"] = setting("all", was=("pairing",), only=_DUAL)
    """All pairs of samples and points, or one sample a point."""
    cost: Literal["mahalanobis", "euclidean"] = setting("mahalanobis", was=("cost",), only=_SAMPLED)
    """Cost between a point and a sample, with the sample's detached variance or without."""
    eps: float = setting(1.0, low=1e-6, was=("eps",), only=_PAIRED)
    """Entropic regularisation, per dimension of the cost."""
    samples: int | None = setting(None, low=1, was=("samples",), only=_PAIRED)
    """Samples a class and step (S); none: as many as points."""
    temperature: float = setting(0.5, low=1e-3, was=("temperature",), only=_SAMPLED)
    """Temperature of Gumbel-Softmax."""
    ascents: int = setting(3, was=("potential_steps",), only=_WITH_PHI)
    """Ascent steps of the Kantorovich network (T_phi)."""
    descents: int = setting(1, low=1, was=("descents",))
    """Descent steps on (pi, mu, sigma)."""
    hidden: int = setting(64, low=1, only=_WITH_PHI)
    """Width of the Kantorovich network."""
    rate_phi: float = setting(0.01, only=_WITH_PHI)
    """Rate of the Kantorovich network."""
    rate_mu: float = 0.02
    """Rate of the centroids, in units of the class's rms sigma."""
    rate_sigma: float = 0.01
    """Rate of log sigma."""
    rate_pi: float = 0.02
    """Rate of the weights' logits."""
    floor: float = setting(1e-3, high=1, was=("floor",))
    """Least variance, as a share of the mean variance of all classes."""


Noise = tuple[Tensor, Tensor]  # Gumbel variables (..., S, K), standard normal ones (..., S, K, d)


class Sample(NamedTuple):
    """Points of the mixture and the variance each was drawn with."""

    points: Tensor  # (..., S, d)
    var: Tensor  # (..., S, d), detached


def draw(shape: tuple[int, ...], dim: int, generator: torch.Generator, like: Tensor) -> Noise:
    """Noise for `shape` = (..., S, K) in `dim` dimensions."""
    gumbel = draw_gumbel(shape, generator, like)
    device = generator.device
    normal = torch.randn((*shape, dim), generator=generator, device=device, dtype=like.dtype)
    return gumbel, normal.to(like.device)


def sample_mixture(
    mu: Tensor, sigma: Tensor, log_pi: Tensor, noise: Noise, temperature: float
) -> Sample:
    """z~ = sum_k l_k (mu_k + sigma_k eps_k), l = softmax((log pi + G) / temperature).

    Gradients reach mu, sigma (..., K, d) and log_pi (..., K).
    """
    gumbel, normal = noise
    labels = torch.softmax((log_pi.unsqueeze(-2) + gumbel) / temperature, dim=-1)
    shifted = sigma.unsqueeze(-3) * normal  # (..., S, K, d)
    points = labels @ mu + (labels.unsqueeze(-1) * shifted).sum(-2)
    return Sample(points, (labels @ sigma.square()).detach())


def phi(network: Sequence[Tensor], z: Tensor) -> Tensor:
    """Values (B, n) of the B networks on their points (B, n, d)."""
    w1, b1, w2 = network
    hidden = torch.nn.functional.softplus(torch.baddbmm(b1.unsqueeze(1), z, w1))
    return (hidden @ w2.unsqueeze(-1)).squeeze(-1)


def pair_cost(sample: Sample, z: Tensor, s: DualSettings) -> Tensor:
    """Cost per dimension (B, S, n) between samples and points."""
    precision = sample.var.reciprocal() if s.cost == "mahalanobis" else None
    return squared_distances(sample.points, z, precision) / z.shape[-1]


def dual_loss(
    sample: Sample, z: Tensor, mask: Tensor, network: Sequence[Tensor], s: DualSettings
) -> Tensor:
    """J per class (B,); one-to-one pairing compares sample j with point j.

    Without a number of samples there are as many as a class has points, those of its mask.
    """
    if s.pairing == "one":
        gap = (sample.points - z).square()
        gap = gap / sample.var if s.cost == "mahalanobis" else gap
        return (gap.mean(-1) * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    seen = mask.new_ones(sample.points.shape[:2]) if s.samples else mask
    log_p, log_q = uniform_log_weights(mask, z.dtype), uniform_log_weights(seen, z.dtype)
    return semidual(phi(network, z), pair_cost(sample, z, s), log_p, log_q, s.eps)


def debiased_loss(
    first: Sample, second: Sample, z: Tensor, mask: Tensor, s: DualSettings
) -> Tensor:
    """W_eps(p, q) - W_eps(q, q') / 2 per class (B,), gradients by the envelope theorem."""
    log_p = uniform_log_weights(mask, z.dtype)
    log_q = uniform_log_weights(torch.ones_like(first.points[..., 0], dtype=torch.bool), z.dtype)
    cross = sinkhorn(pair_cost(first, z, s), log_q, log_p, s.eps, PLAN_STEPS).value
    own = sinkhorn(pair_cost(first, second.points, s), log_q, log_q, s.eps, PLAN_STEPS).value
    return cross - own / 2


def nll_loss(mu: Tensor, sigma: Tensor, log_pi: Tensor, z: Tensor, mask: Tensor) -> Tensor:
    """-mean_j log q(z_j) per class and dimension (B,)."""
    points = Points(z, z.square(), mask, torch.zeros_like(z[:, :1]))
    scores = component_log_density(points, mu, sigma.square()) + log_pi.unsqueeze(-1)
    mean = (torch.logsumexp(scores, 1) * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    return -mean / z.shape[-1]


class Dual:
    """Moves mixtures by gradients; Adam has one state and one step count per class."""

    def __init__(self, mixtures: Mixtures) -> None:
        self.mixtures, self.s, self.store = mixtures, mixtures.settings.dual, mixtures.store
        self.objective, k, dim = mixtures.settings.objective, mixtures.components, mixtures.dim
        self.network = NETWORK if self.objective == "dual" and self.s.pairing == "all" else ()
        h = self.s.hidden
        shapes = [(k, dim), (k, dim), (k,), (dim, h), (h,), (h,)]
        for name, shape in zip((*MIXTURE, *self.network), shapes, strict=False):
            if name in self.network:
                self.store.add(name, shape)
            self.store.add(f"{name}.m", shape)
            self.store.add(f"{name}.v", shape)

    def start_networks(self, rows: Tensor, generator: torch.Generator) -> None:
        """Random first layers for new classes; the last one starts at zero, so phi = 0."""
        if self.network:
            layer = self.store.columns["phi.w1"]
            shape = (len(rows), *layer.shape[1:])
            w1 = torch.randn(shape, generator=generator, device=generator.device)
            self.store.put(rows, {"phi.w1": w1.to(layer) / shape[1] ** 0.5})

    def move(self, classes: Ints, first: Ints, count: Ints, generator: torch.Generator) -> None:
        """Classes by their points first..count-1; the floor is a share of the variance within.

        These objectives pull the variances down without end, so it is taken from the points.
        """
        several = count - first > (0 if self.objective == "nll" else 1)
        classes, first, count = classes[several], first[several], count[several]
        if not len(classes):
            return
        m, rows = self.mixtures, torch.from_numpy(classes).to(self.store.device)
        zero = m.pooled_variance.new_zeros(1, 1, 1)
        z, _, mask, _ = self.store.queued(classes, first, count, zero)[1]
        within = variance_within(z, mask)
        if within is not None:
            m.pooled_variance.lerp_(within, 0.05 if m.pooled_variance.any() else 1.0)
        floor = (self.s.floor * m.pooled_variance.mean()).clamp(min=smallest_variance(z.dtype))
        updates = self.store.host("steps")
        self.step(rows, torch.from_numpy(updates[classes]), z, mask, floor, generator)
        self.store.put(rows, {"least": floor.expand(len(rows))})
        updates[classes] += 1

    def step(
        self, rows: Tensor, updates: Tensor, z: Tensor, mask: Tensor, floor: Tensor,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        """One update of the classes `rows` (B,) from z (B, n, d): ascents of phi, then descents.

        updates (B,) is the number of those before; variances stay above `floor`.
        """
        s, store = self.s, self.store
        mu, var, log_pi, *network = store.take(rows, "mu", "var", "log_pi", *self.network)
        pi = log_pi.exp().unsqueeze(-1)
        centre = (pi * mu).sum(1, keepdim=True)
        scale = (pi * var).sum(1, keepdim=True).mean(-1, keepdim=True).sqrt()  # (B, 1, 1)
        z, updates = (z - centre) / scale, updates.to(store.device, store.dtype)
        values = [(mu - centre) / scale, 0.5 * var.log() - scale.log(), log_pi]
        size = (len(z), s.samples if s.samples else z.shape[1], mu.shape[1])
        draws = {"nll": 0, "debiased": 2}.get(self.objective, 1)
        for t in range(s.ascents if network else 0):
            sample = self._sample(values, draw(size, z.shape[-1], generator, z))
            grads = _gradients(network, lambda w: -dual_loss(sample, z, mask, w, s))  # noqa: B023
            count = updates * s.ascents + t
            network = self.adam(rows, self.network, network, grads, [s.rate_phi] * 3, count)
        for t in range(s.descents):
            noises = [draw(size, z.shape[-1], generator, z) for _ in range(draws)]
            grads = _gradients(values, lambda v: self._loss(v, network, z, mask, noises))  # noqa: B023
            rates, count = [s.rate_mu, s.rate_sigma, s.rate_pi], updates * s.descents + t
            values = self.adam(rows, MIXTURE, values, grads, rates, count)
        new = dict(zip(self.network, network, strict=True)) | {"mu": values[0] * scale + centre}
        new["var"] = (2 * (values[1] + scale.log())).exp().clamp(min=floor)
        store.put(rows, new | {"log_pi": torch.log_softmax(values[2], -1)})

    def _sample(self, values: Sequence[Tensor], noise: Noise) -> Sample:
        mu, log_sigma, logits = values
        log_pi = torch.log_softmax(logits, -1)
        return sample_mixture(mu, log_sigma.exp(), log_pi, noise, self.s.temperature)

    def _loss(
        self, values: Sequence[Tensor], network: Sequence[Tensor], z: Tensor, mask: Tensor,
        noises: Sequence[Noise],
    ) -> Tensor:  # fmt: skip
        """What is descended, per class (B,), of (mu, log sigma, logits of pi)."""
        if self.objective == "nll":
            return nll_loss(values[0], values[1].exp(), values[2].log_softmax(-1), z, mask)
        samples = [self._sample(values, noise) for noise in noises]
        if self.objective == "debiased":
            return debiased_loss(samples[0], samples[1], z, mask, self.s)
        return dual_loss(samples[0], z, mask, network, self.s)

    def adam(
        self, rows: Tensor, names: Sequence[str], values: Sequence[Tensor],
        grads: Sequence[Tensor], rates: Sequence[float], count: Tensor,
    ) -> list[Tensor]:  # fmt: skip
        """One step down (Kingma and Ba 2015); count (B,) are the steps of each class before."""
        moved = []
        for name, value, grad, rate in zip(names, values, grads, rates, strict=True):
            first, second = self.store.take(rows, f"{name}.m", f"{name}.v")
            first = torch.lerp(grad, first, BETAS[0])
            second = torch.lerp(grad.square(), second, BETAS[1])
            self.store.put(rows, {f"{name}.m": first, f"{name}.v": second})
            t = (count + 1).view(-1, *([1] * (value.ndim - 1)))
            step = (first / (1 - BETAS[0] ** t)) / ((second / (1 - BETAS[1] ** t)).sqrt() + 1e-8)
            moved.append(value - rate * step)
        return moved


@torch.enable_grad()
def _gradients(
    values: Sequence[Tensor], loss: Callable[[list[Tensor]], Tensor]
) -> tuple[Tensor, ...]:
    """Of the sum of `loss` over classes; zero where a value plays no part."""
    leaves = [value.detach().requires_grad_() for value in values]
    return torch.autograd.grad(loss(leaves).sum(), leaves, materialize_grads=True)
