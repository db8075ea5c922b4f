"""Entropic optimal transport for many small masked problems at once: pure functions.

Everything is batched over leading axes (classes), works in the log domain and takes *log weights*:
a padded point has log weight -inf and then plays no part, whatever finite value its cost has.

Symbols: cost d(x_i, y_j) (..., n, m); weights a (..., n), b (..., m); potentials f (..., n),
g (..., m); regularisation eps. The regularised problem is

    W_eps(a, b) = min_P <P, d> + eps KL(P || a b^T),   P 1 = a,  P^T 1 = b.

References: Cuturi 2013 (Sinkhorn); Genevay, Cuturi, Peyre, Bach 2016 (semi-dual);
Chizat et al. 2018 (relaxed marginals, `responsibilities`);
Delon and Desolneux 2020 (mixture-Wasserstein).
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Transport(NamedTuple):
    """What Sinkhorn returns: potentials, the plan and the value of the dual."""

    f: Tensor  # (..., n)
    g: Tensor  # (..., m)
    plan: Tensor  # (..., n, m)
    value: Tensor  # (...)


def uniform_log_weights(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Log of equal weights over the true entries of `mask` (..., n); -inf elsewhere."""
    count = mask.sum(-1, keepdim=True).clamp(min=1).to(dtype)
    return torch.where(mask, -count.log(), torch.full_like(count, -torch.inf))


def _dot(log_weights: Tensor, values: Tensor) -> Tensor:
    """sum_i w_i v_i over the last axis, where entries without weight do not count."""
    weights = log_weights.exp()
    return (weights * torch.where(weights > 0, values, torch.zeros_like(values))).sum(-1)


def c_transform(phi: Tensor, cost: Tensor, log_weights: Tensor, eps: float) -> Tensor:
    """Soft c-transform: phi~(x) = -eps log sum_j w_j exp((phi(y_j) - d(x, y_j)) / eps).

    phi (..., n) on the points y, cost (..., S, n), log_weights (..., n) -> (..., S). With equal
    weights this is the log-mean-exp of the paper.
    """
    inside = (phi.unsqueeze(-2) - cost) / eps + log_weights.unsqueeze(-2)  # (..., S, n)
    return -eps * torch.logsumexp(inside, dim=-1)


def semidual(phi: Tensor, cost: Tensor, log_p: Tensor, log_q: Tensor, eps: float) -> Tensor:
    """Semi-dual J(phi) = E_p[phi] + E_q[phi~]; its maximum over phi is W_eps (Genevay 2016, 2.1).

    phi and log_p (..., n), cost (..., S, n) from the samples of q to the points of p,
    log_q (..., S) -> (...).
    """
    return _dot(log_p, phi) + _dot(log_q, c_transform(phi, cost, log_p, eps))


def sinkhorn(
    cost: Tensor, log_a: Tensor, log_b: Tensor, eps: float, iterations: int, g: Tensor | None = None
) -> Transport:
    """Log-domain Sinkhorn with a fixed number of iterations (no test that waits for the device).

    The last half-step is on the rows, so P 1 = a holds exactly and P^T 1 = b at convergence. `g`
    warm starts. The value <a, f> + <b, g> - eps (sum P - 1) has the gradient of the optimum with
    respect to the cost (envelope theorem: the plan) and does not differentiate through the
    iterations.
    """
    with torch.no_grad():
        scores = -cost / eps
        rows, columns = scores + log_b.unsqueeze(-2), scores + log_a.unsqueeze(-1)
        zero = torch.zeros((), dtype=cost.dtype, device=cost.device)
        g = torch.zeros_like(log_b + scores[..., 0, :]) if g is None else g
        f = -eps * torch.logsumexp(rows + g.unsqueeze(-2) / eps, -1)
        for _ in range(iterations):
            g = -eps * torch.logsumexp(columns + f.unsqueeze(-1) / eps, -2)
            f = -eps * torch.logsumexp(rows + g.unsqueeze(-2) / eps, -1)
        f = torch.where(log_a > -torch.inf, f, zero)
        g = torch.where(log_b > -torch.inf, g, zero)
    log_plan = (f.unsqueeze(-1) + g.unsqueeze(-2) - cost) / eps
    plan = torch.exp(log_plan + log_a.unsqueeze(-1) + log_b.unsqueeze(-2))
    value = _dot(log_a, f) + _dot(log_b, g) - eps * (plan.sum((-2, -1)) - 1)
    return Transport(f, g, plan.detach(), value)


def squared_distances(x: Tensor, y: Tensor, precision: Tensor | None = None) -> Tensor:
    """sum_j w_ij (x_ij - y_kj)^2 by matrix products: x (..., n, d), y (..., m, d) -> (..., n, m).

    `precision` (..., n, d) weighs the coordinates of each row of x (Mahalanobis with the sample's
    own diagonal covariance); None is the squared Euclidean distance. Both clouds are first moved
    by a common shift, without which the expanded square loses digits far from the origin.
    """
    shift = y.mean(-2, keepdim=True).detach()
    x, y = x - shift, y - shift
    if precision is None:
        square = x.square().sum(-1).unsqueeze(-1) + y.square().sum(-1).unsqueeze(-2)
        return (square - 2 * x @ y.mT).clamp(min=0)
    weighted = precision * x
    first = (weighted * x).sum(-1).unsqueeze(-1)
    return (first + precision @ y.square().mT - 2 * weighted @ y.mT).clamp(min=0)


def mixture_wasserstein(
    mu: Tensor, var: Tensor, log_pi: Tensor, nu: Tensor, omega: Tensor, log_rho: Tensor
) -> Tensor:
    """MW_2 (not squared) between diagonal mixtures, transport over components (Delon 2020, 4.1).

    mu and the variances var (..., K, d), nu and omega (..., L, d), log weights (..., K) and (...,
    L) -> (...); the cost of a pair is W_2^2 = |mu_k - nu_l|^2 + |sigma_k - omega_l|^2 of the
    standard deviations. Sinkhorn with eps going down to 0.001 of the mean cost, then a feasible
    rounding of the plan (Altschuler et al. 2017), so the result is an upper bound, tight to about
    0.1 %.
    """
    cost = squared_distances(mu, nu) + squared_distances(var.sqrt(), omega.sqrt())
    scale = cost.mean((-2, -1), keepdim=True).clamp(min=torch.finfo(cost.dtype).tiny)
    g: Tensor | None = None
    plan = torch.zeros_like(cost)
    for halvings in range(11):
        result = sinkhorn(cost / scale, log_pi, log_rho, 0.5**halvings, 100, g=g)
        g, plan = result.g, result.plan
    return (_feasible(plan, log_pi.exp(), log_rho.exp()) * cost).sum((-2, -1)).sqrt()


def _feasible(plan: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The nearest-by plan with marginals exactly a and b: scale down, then add a rank-one rest."""
    tiny = torch.finfo(plan.dtype).tiny
    plan = plan * (a / plan.sum(-1).clamp(min=tiny)).clamp(max=1).unsqueeze(-1)
    plan = plan * (b / plan.sum(-2).clamp(min=tiny)).clamp(max=1).unsqueeze(-2)
    rest_a, rest_b = a - plan.sum(-1), b - plan.sum(-2)
    total = rest_a.sum(-1).clamp(min=tiny)[..., None, None]
    return plan + rest_a.unsqueeze(-1) * rest_b.unsqueeze(-2) / total


def responsibilities(
    scores: Tensor, log_pi: Tensor, mask: Tensor, steps: int, relax: float
) -> tuple[Tensor, Tensor]:
    """Rows of the transport plan between n points and K weighted components, summing to one.

    The same fixed point as `sinkhorn` with cost = -scores * eps, in the layout of the mixtures
    (components before points) and with one softmax per iteration: scores = log-density / eps
    (B, K, n), log_pi (B, K), mask (B, n) -> responsibilities (B, K, n), g / eps (B, K).
    relax = 0 is the E-step of EM, relax = 1 that of Sinkhorn-EM (Mena et al. 2020).
    """
    # e^-60 counts as nothing: it keeps the logs finite without another maximum, and the
    # products free of denormal numbers, which are slow
    weight = uniform_log_weights(mask, scores.dtype).exp().unsqueeze(-1)  # (B, n, 1)
    scores = scores + log_pi.unsqueeze(-1)
    resp = torch.log_softmax(scores, 1).clamp_(min=-60.0).exp_()
    used, none = log_pi > -torch.inf, torch.zeros_like(log_pi)
    g = none
    for _ in range(steps if relax else 0):
        column = torch.bmm(resp, weight).squeeze(-1).log()  # of the plan's masses
        g = torch.where(used, relax * (g + log_pi - column), none)
        resp = torch.log_softmax(scores + g.unsqueeze(-1), 1).clamp_(min=-60.0).exp_()
    return resp * (weight.mT > 0), g
