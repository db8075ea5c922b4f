"""The pseudo-prototypical proxy loss of CoPE."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F


def pseudo_prototypical_proxy(
    z: torch.Tensor, y: torch.Tensor, prototypes: torch.Tensor, tau: float, repel: float = 1.0
) -> torch.Tensor:
    """Points towards the prototype and the points of their class, away from those of the others.

    With P(q | x) = exp(q.x / tau) / ( exp(q.x / tau) + sum_{k != c} exp(p_k.x / tau) ) for a
    prototype or a point q of class c, B_c the points of class c and n of all classes (De Lange and
    Tuytelaars, ICCV 2021):

    E_i  = 1/|B_c| ( P(p_c | z_i) + sum_{j in B_c, j != i} P(z_j | z_i) )      c = y_i, z_j constant
    E_ij = 1/2 ( P(z_j | z_i) + P(p_c | z_i) )                                c = y_j != y_i
    L    = 1/n ( sum_i -log E_i + repel sum_{i, j: y_i != y_j} -log(1 - E_ij) )

    The second sum has about n^2 terms and n divides it once: `repel` sets its weight. Prototypes
    are constant, and there must be those of two classes or more.

    z (n, d) of unit length, y (n,), prototypes (C, d), C >= 2 -> 0-d.
    """
    n = len(z)
    to_prototypes = z @ prototypes.detach().T / tau  # (n, C): p_k.z_i / tau
    rivals = others_logsumexp(to_prototypes)  # (n, C): log sum_{k != c} exp(p_k.z_i / tau)
    own, same = rivals.gather(1, y[:, None]), y[:, None] == y
    # log P = logsigmoid(q.x / tau - log sum): no probability is ever formed
    point = F.logsigmoid(z @ z.detach().T / tau - own)  # (n, n): log P(z_j | z_i), y_j = y_i
    prototype = F.logsigmoid(to_prototypes.gather(1, y[:, None]) - own)  # (n, 1)
    fellow = same & ~torch.eye(n, dtype=torch.bool, device=z.device)
    terms = torch.cat([prototype, point.masked_fill(~fellow, -torch.inf)], 1)
    attract = same.sum(1).to(z.dtype).log() - terms.logsumexp(1)  # (n,): -log E_i
    theirs = rivals[:, y]  # (n, n): at z_i, without the class of j
    escape = torch.logaddexp(  # log(1 - P(z_j | z_i)) and log(1 - P(p_c | z_i))
        F.logsigmoid(theirs - z @ z.T / tau), F.logsigmoid(theirs - to_prototypes[:, y])
    )
    push = (math.log(2) - escape).masked_fill(same, 0.0)
    return (attract.sum() + repel * push.sum()) / n


def others_logsumexp(scores: torch.Tensor) -> torch.Tensor:
    """log sum_{k != c} exp(s_k) for every c: scores (n, C), C >= 2 -> (n, C).

    log(S - exp(s_c)) of the full sum S loses its digits only where s_c is the largest of the row
    by far, so the column of the largest is summed without it. One pass instead of C.

    >>> others_logsumexp(torch.tensor([[0.0, 100.0, 0.0]]))
    tensor([[100.0000,   0.6931, 100.0000]])
    """
    largest = F.one_hot(scores.argmax(1), scores.shape[1]).bool()
    rest = scores.masked_fill(largest, -torch.inf).logsumexp(1, keepdim=True)
    total = scores.logsumexp(1, keepdim=True)
    share = (scores - total).masked_fill(largest, -1.0).exp()  # at most 1/2
    return torch.where(largest, rest, total + torch.log1p(-share))
