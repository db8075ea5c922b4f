"""Dynamic Preservation: Eq. 10 of OTC, and the same with every class weighing the same."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

RANDOM = ("printed", "printed-others")  # forms with a random sample of each class


def preservation_loss(
    z: Tensor, y: Tensor, mu: Tensor, active: Tensor, tau: float, form: str, draw: torch.Generator
) -> Tensor:
    """Pull features to the centroids of their class and away from all others.

    z (n, d), y (n,), mu (C, K, d) without gradient, active (C, K) bool -> 0-d. `form`: balanced,
    or one of `dynamic_preservation`, two of which `draw`.
    """
    if form == "balanced":
        return balanced_preservation(z, y, mu, active, tau)
    keys = torch.rand(len(y), len(y), generator=draw).to(z.device) if form in RANDOM else None
    return dynamic_preservation(z, y, mu, active, tau, form, keys)


def dynamic_preservation(
    z: Tensor, y: Tensor, mu: Tensor, active: Tensor, tau: float, form: str, keys: Tensor | None
) -> Tensor:
    """Eq. 10 of OTC, with the minus sign that its words ask for.

    L = - mean_c mean_{x of c} log( g_cen^c / sum_c' (g_cen^c' + g_fea^c') ) with
    g_cen^c' = sum_k exp(z.mu_kc' / tau) over all classes with centroids, and over the classes of
    the batch g_fea^c' = exp(z.z' / tau) of one sample z' of c', never x itself: for each x that
    with the largest of its `keys` (n, n). Points of a class without centroids take no part.

    `form`: printed has all classes in the sum; printed-others leaves g_fea of c' = c out, as the
    words below the equation do; so do, with centroids of unit length, printed-first with the first
    sample of each class in place of a random one, printed-mean and printed-sum with all of them.
    """
    n, (classes, components, dim) = len(z), mu.shape
    if keys is None:
        mu = F.normalize(mu, dim=2)
    centroid = (z @ mu.detach().reshape(-1, dim).T / tau).view(n, classes, components)
    centroid = centroid.masked_fill(~active, -torch.inf).logsumexp(2)  # log g_cen (n, C)
    kept = active.any(1)[y]
    own = F.one_hot(y, classes).bool()  # (n, C)
    feature = z @ z.T / tau  # (n, n)
    if form != "printed":
        feature = feature.masked_fill(y[:, None] == y, -torch.inf)
    if keys is not None:
        feature = feature.masked_fill(~one_of_each(keys, y, classes), -torch.inf)
    elif form == "printed-first":
        feature = feature.masked_fill(~first_of_each(y), -torch.inf)
    elif form == "printed-mean":
        feature = feature - own.sum(0)[y].to(z.dtype).log()
    denominator = torch.cat([centroid, feature], 1).logsumexp(1)
    loss = (denominator - centroid.masked_fill(~own, -torch.inf).amax(1)).masked_fill(~kept, 0.0)
    return _class_balanced(loss, kept, own)


def balanced_preservation(z: Tensor, y: Tensor, mu: Tensor, active: Tensor, tau: float) -> Tensor:
    """The same pull and push with positives and with every class weighing the same.

    e(u) = exp(z.u / tau), D = sum_c' [ sum_k e(mu_kc') + sum_{x' of c'} e(z') ] / (K_c' + n_c'),
    the point itself left out, and with the other points P of the class
    L = -1 / (1 + |P|) [ log(g_cen / K_c / D) + sum_{p in P} log(e(z_p) / D) ].
    """
    n, (classes, components, dim) = len(z), mu.shape
    mu = F.normalize(mu.detach(), dim=2)
    centroid = (z @ mu.reshape(-1, dim).T / tau).view(n, classes, components)
    centroid = centroid.masked_fill(~active, -torch.inf)
    own = F.one_hot(y, classes).bool()
    same = (y[:, None] == y).fill_diagonal_(False)  # positives (n, n)
    point = (z @ z.T / tau).masked_fill(torch.eye(n, dtype=torch.bool, device=z.device), -torch.inf)
    counts = active.sum(1) + own.sum(0) - own.int()  # (n, C): members of each class, self left out
    share = counts.clamp(min=1).to(z.dtype).log()
    log_d = torch.cat([(centroid - share[:, :, None]).flatten(1), point - share[:, y]], 1)
    log_d = log_d.logsumexp(1)
    mean_cen = centroid.logsumexp(2) - active.sum(1).clamp(min=1).to(z.dtype).log()
    kept = active.any(1)[y]
    to_centroids = mean_cen.masked_fill(~own, -torch.inf).amax(1).masked_fill(~kept, 0.0)
    to_points = point.masked_fill(~same, 0.0).sum(1)
    positives = same.sum(1)
    total = to_centroids - log_d + to_points - positives * log_d
    loss = (-total / (1 + positives)).masked_fill(~kept, 0.0)
    return _class_balanced(loss, kept, own)


def one_of_each(keys: Tensor, y: Tensor, classes: int) -> Tensor:
    """For each of n points, the one of every class that has the largest of its keys (n, n).

    The point itself is not chosen.

    >>> keys = torch.tensor([[9, 1, 2], [3, 9, 8], [5, 4, 9]])
    >>> one_of_each(keys, torch.tensor([0, 0, 1]), 2).int().tolist()
    [[0, 1, 1], [1, 0, 1], [1, 0, 0]]
    """
    keys = keys.double().fill_diagonal_(-torch.inf)
    best = keys.new_full((len(y), classes), -torch.inf)
    best = best.scatter_reduce(1, y.expand(len(y), -1), keys, "amax")
    return (keys == best[:, y]) & (keys > -torch.inf)


def first_of_each(y: Tensor) -> Tensor:
    """Marks the first occurrence of every label in y (n,).

    >>> first_of_each(torch.tensor([4, 2, 4, 2, 1])).tolist()
    [True, True, False, False, True]
    """
    earlier = torch.ones(len(y), len(y), dtype=torch.bool, device=y.device).tril(-1)
    return ~((y[:, None] == y) & earlier).any(1)


def _class_balanced(loss: Tensor, kept: Tensor, own: Tensor) -> Tensor:
    """Mean over the classes present of the mean over their points: loss (n,), own (n, C) -> 0-d."""
    members = (own & kept[:, None]).to(loss.dtype)
    size = members.sum(0)  # (C,)
    present = (size > 0).sum().clamp(min=1)
    return ((loss @ members) / size.clamp(min=1)).sum() / present
