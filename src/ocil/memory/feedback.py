"""Adaptive prototypical feedback (OnPro, Wei et al. 2023): which images are mixed with which.

Classes whose prototypes are close are likely to be confused, so more pairs of them are mixed.
All is drawn on the CPU and costs as much as the images it chooses.
"""

import numpy as np
import torch
from torch import Tensor

TOP = 0.6  # largest share of the second image where partners are random
SHAPE = 0.4  # both parameters of the Beta distribution of the share in guided pairs


def random_partners(n: int, chance: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """For each of n images a partner out of them and the partner's share: (n,) int, (n,) float.

    With probability `chance` the batch is mixed at all, and then each image with that probability:
    it acts twice, so that an image is mixed with chance^2. The share is uniform in [0, 0.6); the
    partners are a permutation.
    """
    partner = torch.randperm(n, generator=generator)
    u = torch.rand(2 * n + 1, generator=generator)
    mixed = (u[0] < chance) & (u[1 : n + 1] < chance)
    return partner, TOP * u[n + 1 :] * mixed


def close_pairs(prototypes: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """`wanted` pairs (wanted, 2) of rows of prototypes (K, d) on the CPU, close ones more often.

    q = softmax(1 / |p_a - p_b|) over the K (K - 1) / 2 pairs; each pair is taken round(q wanted)
    times. What is then too much is left out at random, what is missing is filled up with random
    pairs. No pairs at all for K < 2.
    """
    k = len(prototypes)
    if k < 2:
        return torch.empty(0, 2, dtype=torch.int64)
    pairs = torch.combinations(torch.arange(k))  # (P, 2)
    q = (1 / torch.pdist(prototypes.float()).clamp(min=1e-6)).softmax(0).nan_to_num()
    chosen = torch.arange(len(pairs)).repeat_interleave((q * wanted).round().long())
    chosen = chosen[torch.randperm(len(chosen), generator=generator)[:wanted]]
    more = torch.randint(len(pairs), (wanted - len(chosen),), generator=generator)
    return pairs[torch.cat([chosen, more]).sort().values]


def pair_shares(pairs: Tensor, chance: float, generator: torch.Generator) -> Tensor:
    """The second image's share for pairs (n, 2) of classes -> (n,).

    One draw for each distinct pair decides with probability `chance` that its images are mixed, by
    Beta(0.4, 0.4) each; the others stay the first image, share 0.
    """
    distinct, which = pairs.unique(dim=0, return_inverse=True)
    mixed = torch.rand(len(distinct), generator=generator)[which] < chance
    seed = int(torch.randint(2**62, (), generator=generator))  # torch's Beta takes no generator
    shares = np.random.default_rng(seed).beta(SHAPE, SHAPE, len(pairs))
    return torch.from_numpy(shares).float() * mixed


def members_of(
    classes: list[int], members: list[list[int]], labels: list[int], generator: torch.Generator
) -> list[int]:
    """A random slot of the memory for each class asked for, slots may repeat.

    members, labels: the slots of each class and the class of each slot, as `Memory` keeps them. A
    class that has left the memory is replaced by that of a random image.
    """
    slots = []
    for label, (u, v) in zip(
        classes, torch.rand(len(classes), 2, generator=generator).tolist(), strict=True
    ):
        own = members[label] if label < len(members) else []
        own = own or members[labels[int(v * len(labels))]]
        slots.append(own[int(u * len(own))])
    return slots
