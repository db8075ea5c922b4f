"""Gradient objectives: the paper's entropic dual, its debiased form and the likelihood.

All are losses of the mixtures of B classes at once, in coordinates relative to each class (centre
and rms sigma), with costs per dimension; so eps and the rates mean the same in every feature space:

    dual      J = E_p[phi] + E_q[phi~], T_phi ascent steps on phi, then descent on (pi, mu, sigma)
    debiased  W_eps(p, q) - W_eps(q, q') / 2, potentials from Sinkhorn
    nll       -E_p[log q]

p: the points of a class, q: S reparameterised samples of its mixture. phi is one small network per
class, phi(z) = w2 . softplus(W1 z + b1), whose additive constant cancels. With one-to-one
pairing phi cancels altogether and J is the mean cost of the pairs: no network is trained then.
A class with one point is left alone by dual and debiased (phi would cancel there too), which
`Mixtures` sees to.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ocil.mixture.moments import Points, component_log_density
from ocil.mixture.sampling import Noise, Sample, draw, sample_mixture
from ocil.mixture.settings import MixtureSettings
from ocil.mixture.store import ClassStore
from ocil.mixture.transport import semidual, sinkhorn, squared_distances, uniform_log_weights

BETAS = (0.9, 0.99)
NETWORK = ("phi.w1", "phi.b1", "phi.w2")
MIXTURE = ("d.mu", "d.log_sigma", "d.log_pi")  # names of the optimiser's columns


def add_columns(store: ClassStore, dim: int, settings: MixtureSettings) -> None:
    """Declare the networks (dual) and the optimiser state, one row per class."""
    k, h = settings.components, settings.hidden
    shapes = dict(zip(MIXTURE, ((k, dim), (k, dim), (k,)), strict=True))
    if has_network(settings):
        network = dict(zip(NETWORK, ((dim, h), (h,), (h,)), strict=True))
        for name, shape in network.items():
            store.add(name, shape)
        shapes |= network
    if settings.optimiser == "adam":
        for name, shape in shapes.items():
            store.add(f"{name}.m", shape)
            store.add(f"{name}.v", shape)


def has_network(settings: MixtureSettings) -> bool:
    """Whether a Kantorovich network is trained."""
    return settings.objective == "dual" and settings.pairing == "all"


def start_networks(store: ClassStore, rows: Tensor, generator: torch.Generator) -> None:
    """Random first layers for new classes; the last one starts at zero, so phi = 0."""
    width = store.columns["phi.w1"].shape[1:]
    w1 = torch.randn((len(rows), *width), generator=generator, device=generator.device)
    store.put("phi.w1", rows, w1.to(store.columns["phi.w1"]) / width[0] ** 0.5)


def phi(network: list[Tensor], z: Tensor) -> Tensor:
    """Values (B, n) of the B networks on their points (B, n, d)."""
    w1, b1, w2 = network
    hidden = torch.nn.functional.softplus(torch.baddbmm(b1.unsqueeze(1), z, w1))
    return (hidden @ w2.unsqueeze(-1)).squeeze(-1)


def pair_cost(sample: Sample, z: Tensor, settings: MixtureSettings) -> Tensor:
    """Cost per dimension (B, S, n) between samples and points."""
    precision = sample.var.reciprocal() if settings.cost == "mahalanobis" else None
    return squared_distances(sample.points, z, precision) / z.shape[-1]


def dual_loss(
    sample: Sample, z: Tensor, mask: Tensor, network: list[Tensor], settings: MixtureSettings
) -> Tensor:
    """J per class (B,); one-to-one pairing compares sample j with point j.

    Without a number of samples there are as many as a class has points, those of its mask.
    """
    if settings.pairing == "one":
        gap = (sample.points - z).square()
        gap = gap / sample.var if settings.cost == "mahalanobis" else gap
        return (gap.mean(-1) * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    seen = mask.new_ones(sample.points.shape[:2]) if settings.samples else mask
    log_p, log_q = uniform_log_weights(mask, z.dtype), uniform_log_weights(seen, z.dtype)
    return semidual(phi(network, z), pair_cost(sample, z, settings), log_p, log_q, settings.eps)


def debiased_loss(
    first: Sample, second: Sample, z: Tensor, mask: Tensor, s: MixtureSettings
) -> Tensor:
    """W_eps(p, q) - W_eps(q, q') / 2 per class (B,), gradients by the envelope theorem."""
    log_p = uniform_log_weights(mask, z.dtype)
    log_q = uniform_log_weights(torch.ones_like(first.points[..., 0], dtype=torch.bool), z.dtype)
    cross = sinkhorn(pair_cost(first, z, s), log_q, log_p, s.eps, s.sinkhorn_steps).value
    own = sinkhorn(pair_cost(first, second.points, s), log_q, log_q, s.eps, s.sinkhorn_steps).value
    return cross - own / 2


def nll_loss(mu: Tensor, sigma: Tensor, log_pi: Tensor, z: Tensor, mask: Tensor) -> Tensor:
    """-mean_j log q(z_j) per class and dimension (B,)."""
    points = Points(z, z.square(), mask, torch.zeros_like(z[:, :1]))
    scores = component_log_density(points, mu, sigma.square()) + log_pi.unsqueeze(-1)
    mean = (torch.logsumexp(scores, 1) * mask).sum(-1) / mask.sum(-1).clamp(min=1)
    return -mean / z.shape[-1]


class GradientStep:
    """One update of the classes in `rows` from their points z (B, n, d), mask (B, n)."""

    def __init__(self, store: ClassStore, rows: Tensor, steps: Tensor, s: MixtureSettings) -> None:
        self.store, self.rows, self.s = store, rows, s
        self.steps = steps.to(store.device, store.dtype)  # (B,) updates so far

    def run(self, z: Tensor, mask: Tensor, floor: Tensor, generator: torch.Generator) -> None:
        """Ascent on phi, then descent; variances stay above `floor`."""
        s, store = self.s, self.store
        mu, var, log_pi = (store.take(name, self.rows) for name in ("mu", "var", "log_pi"))
        pi = log_pi.exp().unsqueeze(-1)
        centre = (pi * mu).sum(1, keepdim=True)
        scale = (pi * var).sum(1, keepdim=True).mean(-1, keepdim=True).sqrt()  # (B, 1, 1)
        z = (z - centre) / scale
        values = [(mu - centre) / scale, 0.5 * var.log() - scale.log(), log_pi]
        network = [store.take(n, self.rows) for n in NETWORK] if has_network(s) else []
        for t in range(s.potential_steps if network else 0):
            noise = self._noise(z, mask, generator)
            network = self._ascend(network, values, z, mask, noise, t)
        for t in range(s.steps):
            noises = [self._noise(z, mask, generator) for _ in range(self._draws())]
            values = self._descend(network, values, z, mask, noises, t)
        store.put("mu", self.rows, values[0] * scale + centre)
        store.put("var", self.rows, (2 * (values[1] + scale.log())).exp().clamp(min=floor))
        store.put("log_pi", self.rows, torch.log_softmax(values[2], -1))
        for name, value in zip(NETWORK, network, strict=False):
            store.put(name, self.rows, value)

    def _draws(self) -> int:
        return {"nll": 0, "debiased": 2}.get(self.s.objective, 1)

    def _noise(self, z: Tensor, mask: Tensor, generator: torch.Generator) -> Noise:
        count = self.s.samples if self.s.samples and self.s.pairing == "all" else mask.shape[1]
        return draw((len(z), count, self.s.components), z.shape[-1], generator, z)

    def _sample(self, values: list[Tensor], noise: Noise) -> Sample:
        mu, log_sigma, logits = values
        log_pi = torch.log_softmax(logits, -1)
        return sample_mixture(mu, log_sigma.exp(), log_pi, noise, self.s.temperature, self.s.hard)

    @torch.enable_grad()
    def _ascend(
        self,
        network: list[Tensor],
        values: list[Tensor],
        z: Tensor,
        mask: Tensor,
        noise: Noise,
        t: int,
    ) -> list[Tensor]:
        sample = self._sample(values, noise)
        leaves = [w.detach().requires_grad_() for w in network]
        loss = -dual_loss(sample, z, mask, leaves, self.s).sum()
        grads = torch.autograd.grad(loss, leaves)
        count = self.steps * self.s.potential_steps + t
        return self._move(NETWORK, leaves, grads, [self.s.rate_phi] * 3, count)

    @torch.enable_grad()
    def _descend(
        self,
        network: list[Tensor],
        values: list[Tensor],
        z: Tensor,
        mask: Tensor,
        noises: list[Noise],
        t: int,
    ) -> list[Tensor]:
        leaves = [v.detach().requires_grad_() for v in values]
        if self.s.objective == "nll":
            log_pi = torch.log_softmax(leaves[2], -1)
            loss = nll_loss(leaves[0], leaves[1].exp(), log_pi, z, mask)
        elif self.s.objective == "debiased":
            first, second = (self._sample(leaves, noise) for noise in noises)
            loss = debiased_loss(first, second, z, mask, self.s)
        else:
            loss = dual_loss(self._sample(leaves, noises[0]), z, mask, network, self.s)
        grads = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
        grads = [
            torch.zeros_like(v) if g is None else g for v, g in zip(leaves, grads, strict=True)
        ]
        rates = [self.s.rate_mu, self.s.rate_sigma, self.s.rate_pi]
        return self._move(MIXTURE, leaves, grads, rates, self.steps * self.s.steps + t)

    @torch.no_grad()
    def _move(self, names, values, grads, rates, count: Tensor) -> list[Tensor]:
        """SGD, or Adam with one state and one step count per class (Kingma and Ba 2015)."""
        if self.s.optimiser == "sgd":
            return [v - r * g for v, g, r in zip(values, grads, rates, strict=True)]
        moved = []
        for name, value, grad, rate in zip(names, values, grads, rates, strict=True):
            state = [self.store.take(f"{name}.{part}", self.rows) for part in "mv"]
            first = torch.lerp(grad, state[0], BETAS[0])
            second = torch.lerp(grad.square(), state[1], BETAS[1])
            self.store.put(f"{name}.m", self.rows, first)
            self.store.put(f"{name}.v", self.rows, second)
            t = (count + 1).view(-1, *([1] * (value.ndim - 1)))
            step = (first / (1 - BETAS[0] ** t)) / ((second / (1 - BETAS[1] ** t)).sqrt() + 1e-8)
            moved.append(value - rate * step)
        return moved
