"""Reparameterised samples of diagonal Gaussian mixtures, soft or straight-through.

Reference: Jang, Gu, Poole 2016 and Maddison, Mnih, Teh 2016 (Gumbel-Softmax). Random numbers are
arguments: draw them with `draw` from a generator of your own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Noise(NamedTuple):
    """The randomness of one draw: Gumbel variables and standard normal ones."""

    gumbel: Tensor  # (..., S, K)
    normal: Tensor  # (..., S, K, d)


class Sample(NamedTuple):
    """Points of the mixture, their (soft) one-hot labels and the variance each was drawn with."""

    points: Tensor  # (..., S, d)
    labels: Tensor  # (..., S, K)
    var: Tensor  # (..., S, d), detached


def draw_gumbel(shape: tuple[int, ...], generator: torch.Generator, like: Tensor) -> Tensor:
    """Standard Gumbel variables, drawn on the generator's device and moved to that of `like`."""
    uniform = torch.rand(shape, generator=generator, device=generator.device, dtype=like.dtype)
    uniform = uniform.clamp(min=torch.finfo(like.dtype).tiny, max=1 - 1e-7)
    return (-(-uniform.log()).log()).to(like.device)


def draw(shape: tuple[int, ...], dim: int, generator: torch.Generator, like: Tensor) -> Noise:
    """Noise for `shape` = (..., S, K) in `dim` dimensions."""
    gumbel = draw_gumbel(shape, generator, like)
    device = generator.device
    normal = torch.randn((*shape, dim), generator=generator, device=device, dtype=like.dtype)
    return Noise(gumbel, normal.to(like.device))


def gumbel_softmax(log_pi: Tensor, gumbel: Tensor, temperature: float, hard: bool) -> Tensor:
    """l_k = softmax_k((log pi_k + G_k) / temperature); log_pi (..., K), gumbel (..., S, K).

    `hard` returns the one-hot arg-max with the gradient of the soft vector (straight-through).
    """
    soft = torch.softmax((log_pi.unsqueeze(-2) + gumbel) / temperature, dim=-1)
    if not hard:
        return soft
    one_hot = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
    return one_hot + soft - soft.detach()


def sample_mixture(
    mu: Tensor, sigma: Tensor, log_pi: Tensor, noise: Noise, temperature: float, hard: bool
) -> Sample:
    """z~ = sum_k l_k (mu_k + sigma_k eps_k) with gradients to mu, sigma (..., K, d) and log_pi."""
    labels = gumbel_softmax(log_pi, noise.gumbel, temperature, hard)  # (..., S, K)
    shifted = sigma.unsqueeze(-3) * noise.normal  # (..., S, K, d)
    points = labels @ mu + (labels.unsqueeze(-1) * shifted).sum(-2)
    return Sample(points, labels, (labels @ sigma.square()).detach())
