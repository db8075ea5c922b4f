"""Contrastive losses of one batch whose classes are known."""

import torch
from torch import Tensor


def supervised_contrastive(
    z: Tensor, y: Tensor, tau: float, *, anchors: Tensor | None = None
) -> Tensor:
    """Each point picks out those of its class among all others (Khosla et al. 2020, L_out).

    L = -1/n sum_i 1/|P_i| sum_{p in P_i} log( e_ip / sum_{j != i} e_ij ), e_ij = exp(z_i.z_j / tau)

    P_i are the other points of the class of i: with two views of every image in the batch, the
    second view of the image and both views of its classmates. A point without any, or outside of
    `anchors`, adds 0 to the sum and still is one of the others for the rest.

    z (n, d) of unit length, y (n,), anchors (n,) bool or None for all -> 0-d.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> loss = supervised_contrastive(z, torch.tensor([0, 0, 1]), tau=0.5)
    >>> round(float(loss), 4)  # 2/3 log(1 + exp(-2)): the third has no other of its class
    0.0846
    """
    others = ~torch.eye(len(z), dtype=torch.bool, device=z.device)
    positive = (y[:, None] == y) & others
    if anchors is not None:
        positive = positive & anchors[:, None]
    return contrast(z @ z.T / tau, positive, others).mean()


def contrast(scores: Tensor, positive: Tensor, candidates: Tensor | None = None) -> Tensor:
    """-mean_{p positive} log softmax(scores)_p of every row, the softmax over `candidates`.

    scores (n, m), positive (n, m) bool, candidates (n, m) bool or None for all -> (n,); 0 in a row
    without a positive. For similarities other than z.z' / tau, or to other points than the batch.
    """
    if candidates is not None:
        scores = scores.masked_fill(~candidates, -torch.inf)
    count = positive.sum(1)
    picked = torch.where(positive, scores, 0.0).sum(1) / count.clamp(min=1)
    return (scores.logsumexp(1) - picked).masked_fill(count == 0, 0.0)
