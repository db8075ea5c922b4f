"""What a labelled point is worth to its neighbours: Shapley values of nearest-neighbour votes."""

from __future__ import annotations

import torch


def knn_shapley(distance: torch.Tensor, agrees: torch.Tensor, neighbours: int) -> torch.Tensor:
    """Exact Shapley value of each candidate for each evaluation point (Jia et al., VLDB 2019).

    A set S of candidates is worth the share of the K nearest of them that have the label of the
    evaluation point, v(S) = 1/K sum_{k <= min(K, |S|)} I_k. With candidates 1..N in order of
    distance the value of the Shapley sum over all subsets is

        s_N = I_N / max(N, K),    s_i = s_{i+1} + (I_i - I_{i+1}) / K * min(K, i) / i,

    a sum from the far end, so that a row costs one sort. The values of a row add up to the worth
    of all candidates together. The code of ASER takes 1/N also where N < K, which is not exact.

    distance (E, N), agrees (E, N) bool -> (E, N) float in the order given; ties keep that order.

    >>> distance = torch.tensor([[3.0, 1.0, 2.0]])
    >>> agrees = torch.tensor([[False, True, False]])
    >>> knn_shapley(distance, agrees, neighbours=1).tolist()
    [[0.0, 1.0, 0.0]]
    """
    count = distance.shape[1]
    order = distance.argsort(dim=1, stable=True)
    hit = agrees.gather(1, order).to(distance.dtype)  # I_i
    rank = torch.arange(1, count + 1, device=distance.device, dtype=distance.dtype)
    factor = rank.clamp(max=neighbours) / (rank * neighbours)
    step = hit.clone()
    step[:, :-1] -= hit[:, 1:]  # I_i - I_{i+1}, and I_N at the end
    value = (step * factor).flip(1).cumsum(1).flip(1)
    return torch.empty_like(value).scatter_(1, order, value)


def adversarial_shapley(
    stream: torch.Tensor, memory: torch.Tensor, form: str = "mean"
) -> torch.Tensor:
    """High for candidates that stand for their class in memory and disturb the stream (ASER).

    mean: mean_e Q[e, d] - mean_e A[e, d], extreme: max_e Q[e, d] - min_e A[e, d], adversarial:
    -sum_e A[e, d], with the candidates' values A for the stream's points and Q for other points of
    the memory. Where there are no such others, Q counts as 0.

    stream (B, N), memory (E, N) -> (N,)
    """
    if form == "adversarial":
        return -stream.sum(0)
    if not len(memory):
        memory = torch.zeros_like(stream[:1])
    if form == "extreme":
        return memory.amax(0) - stream.amin(0)
    return memory.mean(0) - stream.mean(0)
