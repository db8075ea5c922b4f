"""Gradient objectives: the paper's entropic dual (Algorithm 2), its debiased form, the likelihood.

All are losses of the mixtures of B classes at once, in relative coordinates (see `unit`), with
costs per dimension; so eps and the rates mean the same in every feature space:

    dual      J = E_p[phi] + E_q[phi~] (Eq. 9): T_phi ascents of phi, descents of (pi, mu, sigma)
    debiased  W_eps(p, q) - W_eps(q, q') / 2, potentials from Sinkhorn
    nll       -E_p[log q]

p: the points of a class, q: S reparameterised samples of its mixture (Gumbel-Softmax: Jang, Gu,
Poole 2016 and Maddison, Mnih, Teh 2016). phi is a small network, one a class or one for all,
phi(z) = w2 . softplus(W1 z + b1), whose additive constant cancels. With one-to-one pairing phi
cancels altogether and J is the mean cost of the pairs: no network is trained then. It cancels for
a class with a single point as well, which pulls all its centroids to that point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from ocil.fields import setting
from ocil.mixture.moments import smallest_variance, variance_within
from ocil.mixture.objectives import (
    Noise,
    Sample,
    debiased_loss,
    draw,
    dual_loss,
    nll_loss,
    sample_mixture,
)
from ocil.mixture.store import Ints

if TYPE_CHECKING:
    from ocil.mixture.mixtures import Mixtures

BETAS = (0.9, 0.99)
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
    phi: Literal["class", "shared"] = setting("class", only=_WITH_PHI)
    """A Kantorovich network for each class, or one for all."""
    hidden: int = setting(64, low=1, only=_WITH_PHI)
    """Width of the Kantorovich network."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """What takes the steps; sgd descends the cost summed over dimensions, as it is printed."""
    unit: Literal["sigma", "spread"] = "sigma"
    """Length of 1 in costs and rates: a class's rms sigma, or the spread of the points in all
    classes, which does not shrink with sigma."""
    least_points: int = setting(2, low=1, only=_SAMPLED)
    """Classes with fewer points in the batch are left as they are."""
    rate_phi: float = setting(0.01, only=_WITH_PHI)
    """Rate of the Kantorovich network."""
    rate_mu: float = 0.02
    """Rate of the centroids, in lengths of `unit`."""
    rate_sigma: float = 0.01
    """Rate of log sigma."""
    rate_pi: float = 0.02
    """Rate of the weights' logits."""
    floor: float = setting(1e-3, high=1, was=("floor",))
    """Least variance, as a share of the mean variance of all classes."""


class Dual:
    """Moves mixtures by gradients; Adam has one state and one step count per class."""

    def __init__(self, mixtures: Mixtures) -> None:
        self.mixtures, self.s, self.store = mixtures, mixtures.settings.dual, mixtures.store
        self.objective, k, dim = mixtures.settings.objective, mixtures.components, mixtures.dim
        self.network = NETWORK if self.objective == "dual" and self.s.pairing == "all" else ()
        h, self.shared = self.s.hidden, bool(self.network) and self.s.phi == "shared"
        shapes = [(k, dim), (k, dim), (k,), (dim, h), (h,), (h,)]
        for name, shape in zip((*MIXTURE, *self.network), shapes, strict=False):
            if name in self.network:
                self.store.add(name, shape)
            self.store.add(f"{name}.m", shape)
            self.store.add(f"{name}.v", shape)
        if self.shared:  # it lies in the row of class 0
            self.store.add("phi.steps", (), host=True)

    def start_networks(self, rows: Tensor, generator: torch.Generator) -> None:
        """Random first layers for new classes; the last one starts at zero, so phi = 0."""
        if self.shared:
            rows = rows[:0] if self.store.host("seeded").any() else torch.zeros_like(rows[:1])
        if self.network:
            layer = self.store.columns["phi.w1"]
            shape = (len(rows), *layer.shape[1:])
            w1 = torch.randn(shape, generator=generator, device=generator.device)
            self.store.put(rows, {"phi.w1": w1.to(layer) / shape[1] ** 0.5})

    def move(self, classes: Ints, first: Ints, count: Ints, generator: torch.Generator) -> None:
        """Classes by their points first..count-1; the floor is a share of the variance within.

        These objectives pull the variances down without end, so it is taken from the points.
        """
        enough = count - first >= (1 if self.objective == "nll" else self.s.least_points)
        classes, first, count = classes[enough], first[enough], count[enough]
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
        mu, var, log_pi = store.take(rows, "mu", "var", "log_pi")
        where, ascended = rows, updates  # of the networks
        if self.shared:
            where, ascended = (
                torch.zeros_like(rows[:1]),
                torch.from_numpy(store.host("phi.steps")[:1]),
            )
        network = store.take(where, *self.network)
        centre, scale = self._coordinates(mu, var, log_pi)
        z = (z - centre) / scale
        updates, ascended = (n.to(store.device, store.dtype) for n in (updates, ascended))
        values = [(mu - centre) / scale, 0.5 * var.log() - scale.log(), log_pi]
        size = (len(z), s.samples if s.samples else z.shape[1], mu.shape[1])
        draws = {"nll": 0, "debiased": 2}.get(self.objective, 1)
        for t in range(s.ascents if network else 0):
            sample = self._sample(values, draw(size, z.shape[-1], generator, z))
            grads = _gradients(network, lambda w: -dual_loss(sample, z, mask, w, s))  # noqa: B023
            count = ascended * s.ascents + t
            network = self.descend(where, self.network, network, grads, [s.rate_phi] * 3, count)
        for t in range(s.descents):
            noises = [draw(size, z.shape[-1], generator, z) for _ in range(draws)]
            grads = _gradients(values, lambda v: self._loss(v, network, z, mask, noises))  # noqa: B023
            rates, count = [s.rate_mu, s.rate_sigma, s.rate_pi], updates * s.descents + t
            values = self.descend(rows, MIXTURE, values, grads, rates, count)
        if self.shared:
            store.host("phi.steps")[0] += 1
        store.put(where, dict(zip(self.network, network, strict=True)))
        var = (2 * (values[1] + scale.log())).exp().clamp(min=floor)
        new = {"mu": values[0] * scale + centre, "var": var}
        store.put(rows, new | {"log_pi": torch.log_softmax(values[2], -1)})

    def _coordinates(self, mu: Tensor, var: Tensor, log_pi: Tensor) -> tuple[Tensor, Tensor]:
        """Origin (B, 1, d) and unit of length (B, 1, 1); one network for all needs one origin."""
        pi = log_pi.exp().unsqueeze(-1)
        centre = (pi * mu).sum(1, keepdim=True)
        square = (pi * var).sum(1, keepdim=True).mean(-1, keepdim=True)
        if self.s.unit == "spread":
            square = self.mixtures.pooled_variance.mean().expand_as(square)
        origin = torch.zeros_like(centre) if self.shared else centre
        return origin, square.clamp(min=smallest_variance(mu.dtype)).sqrt()

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

    def descend(
        self, rows: Tensor, names: Sequence[str], values: Sequence[Tensor],
        grads: Sequence[Tensor], rates: Sequence[float], count: Tensor,
    ) -> list[Tensor]:  # fmt: skip
        """A step of Adam (Kingma and Ba 2015) or sgd; count (B,) are those of each class before."""
        moved = []
        for name, value, grad, rate in zip(names, values, grads, rates, strict=True):
            if self.s.optimizer == "sgd":
                moved.append(value - rate * self.mixtures.dim * grad)
                continue
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
