"""What OCM and OnPro share: InfoNCE over all turns of an image, for features that are holistic.

Rot(x)   16 turns of an image, each with its label a class of its own
z, F     the linear projection g(h(x)) and the feature h(x), both of unit length
S        c (Z Z^T + Z F[:, s : s + p]^T) for a start s drawn anew for every matrix
L_n      `paired_infonce` of the stream; L_uni, L_pre `infonce` of the memory

Scores are similarities over temperature, (T n, T m): T turns of n row points and of m column
points, the turns one after the other. Positives share turn and label, so that only T blocks of
(n, m) can hold any and the logarithms are taken there alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ocil.errors import OcilError
from ocil.learners.learner import Report
from ocil.learners.model import Model
from ocil.learners.replay import ReplayLearner, as_float
from ocil.nets.projection import Projection
from ocil.settings import Settings, setting
from ocil.stream import Batch

TURNS = 16  # four ways to turn the halves times four quarter turns of the whole
EPS = 1e-8  # bounds a term by -log(EPS) = 18.4: what is hopelessly far is not pulled
COLOUR = {
    "net": "resnet18-global", "width": 64, "inputs": "standardized", "augment": "strong",
}  # fmt: skip


@dataclass(frozen=True)
class HolisticSettings(Settings):
    tau: float = setting(0.07, above=0, search=(0.03, 0.5))
    """Temperature of InfoNCE."""
    projection: int = setting(128, low=1)
    """Dimensions of the projection (p), at most those of the features."""
    similarity_first: float = 1.0
    """Factor of the similarities (c) in the first task."""
    similarity: float = 1.0
    """Factor of the similarities (c) in later tasks."""
    replay_per_class: int = setting(7, low=1)
    """After the first task replay at most this many images for each class seen."""


H = TypeVar("H", bound=HolisticSettings)


class HolisticModel(Model):
    """Net, head and a linear projection."""

    def __init__(self, net: nn.Module, size: int, generator: torch.Generator) -> None:
        super().__init__(net, generator)
        features = self.head.features
        self.projection_size = min(size, features)
        self.projection = Projection(features, 0, self.projection_size, generator)

    def embed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Images -> z (n, p), F (n, d), both of unit length."""
        h = self.net(x)
        return self.projection(h), F.normalize(h, dim=1)


class HolisticLearner(ReplayLearner[H]):
    """A step on the sum of the terms of `loss_terms`."""

    model: HolisticModel

    def __init__(
        self, settings: H, shape: Sequence[int], generators: Mapping[str, torch.Generator]
    ) -> None:
        if len(shape) != 3 or shape[1] != shape[2]:
            raise OcilError(
                f"{self.method} learns from images turned by 90 degrees and needs square ones "
                f"(channels, side, side), but the items have shape {tuple(shape)}; pad them or "
                "choose er."
            )
        super().__init__(settings, shape, generators)

    def build_model(self, net: nn.Module) -> HolisticModel:
        return HolisticModel(net, self.settings.projection, self.generators["init"])

    def step(self, batch: Batch) -> Report:
        terms: Report = {}
        for _ in range(self.updates):
            terms = self.loss_terms(batch.x.to(self.device), batch.y.to(self.device))
            terms["loss"] = torch.stack(list(terms.values())).sum()
            self.optimizer_step(terms["loss"])
        self.remember(batch)
        return {name: term.detach() for name, term in terms.items()}

    def loss_terms(self, x: Tensor, y: Tensor) -> Report:
        """The terms of the loss for raw images x (n, ...) of the stream, y (n,)."""
        raise NotImplementedError

    def embed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """z and F of float images, counted."""
        self.backbone_images += len(x)
        return self.model.embed(x)

    def compare(self, z: Tensor, f: Tensor, factor: float) -> Tensor:
        """S / tau (n, n) of embedded images, with a random slice of the features."""
        draw = self.generators["method"]
        start = int(torch.randint(f.shape[1] - z.shape[1] + 1, (), generator=draw))
        return holistic_scores(z, f, start, factor / self.settings.tau)


def turns(x: Tensor) -> Tensor:
    """All 16 turns of images x (n, C, H, H) -> (16, n, C, H, H), the images themselves first.

    Number 4 q + k: the halves {none, left, both, right}[k] of the width are turned by 180 degrees
    each in its place, then the whole image by q quarter turns.

    >>> x = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> turns(x)[:5, 0, 0].flatten(1).tolist()  # whole; left, both, right half; quarter turn
    [[1, 2, 3, 4], [3, 2, 1, 4], [3, 4, 1, 2], [1, 4, 3, 2], [2, 4, 1, 3]]
    """
    middle = x.shape[-1] // 2
    left, right = x[..., :middle], x[..., middle:]
    turned_left, turned_right = (half.flip((-2, -1)) for half in (left, right))
    halves = torch.stack(
        [
            x,
            torch.cat([turned_left, right], -1),
            torch.cat([turned_left, turned_right], -1),
            torch.cat([left, turned_right], -1),
        ]
    )  # (4, n, C, H, H)
    return torch.cat([halves.rot90(quarter, (-2, -1)) for quarter in range(4)])


def turned_pairs(x: Tensor, augmented: Callable[[Tensor], Tensor]) -> Tensor:
    """Every turn of raw images x (n, ...), as it is and augmented -> (16, 2, n, ...) floats."""
    turned = as_float(turns(x))
    second = augmented(turned.flatten(0, 1)).reshape_as(turned)
    return torch.stack([turned, second], 1)


def holistic_scores(z: Tensor, f: Tensor, start: int, scale: float) -> Tensor:
    """scale (Z Z^T + Z F[:, s : s + p]^T), which is not symmetric (Guo et al. 2022).

    z (n, p) projections and f (n, d) features with p <= d, both of unit length; the slice of the
    features, which starts at `start` <= d - p, is not normalised again -> (n, n).
    """
    return (scale * z) @ (z + f[:, start : start + z.shape[1]]).T


def infonce(scores: Tensor, y: Tensor) -> Tensor:
    """L = mean_i 1/|P_i| sum_{j in P_i} l_ij, the point itself among its positives (L_uni, L_pre).

    l_ij = -log(e_ij / (sum_k e_ik + eps) + eps) with e_ij = exp(scores_ij - max_k scores_ik).

    scores (T n, T n) of points to themselves or to other features of the same images, y (n,) the
    labels of n images -> 0-d.
    """
    return _mean_over_positives(_terms(scores, len(y), with_self=True), y)


def paired_infonce(scores: Tensor, y: Tensor) -> Tensor:
    """L = mean_i l_{i, pair(i)} + 2 mean_i 1/|P_i| sum_{j in P_i} l_ij (L_n).

    l_ij as in `infonce`, but e_ii = 0: the term of a point with itself is the constant -log eps. It
    counts in |P_i| and gives no gradient.

    scores (T 2n, T 2n): in each turn n images, then their second views; y (n,) -> 0-d.
    """
    n = len(y)
    terms = _terms(scores, 2 * n, with_self=False)  # (T, 2n, 2n)
    pair = terms.unflatten(2, (2, n)).unflatten(1, (2, n))  # (T, 2, n, 2, n)
    there, back = pair[:, 0, :, 1], pair[:, 1, :, 0]  # (T, n, n)
    paired = (there.diagonal(dim1=1, dim2=2).mean() + back.diagonal(dim1=1, dim2=2).mean()) / 2
    return paired + 2 * _mean_over_positives(terms, y.repeat(2))


def _terms(scores: Tensor, n: int, *, with_self: bool) -> Tensor:
    """l_ij within each turn: scores (T n, T n) -> (T, n, n)."""
    top = scores.detach().amax(1, keepdim=True)  # (T n, 1), the point itself included
    if not with_self:
        itself = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(itself, -torch.inf)
    total = (scores.logsumexp(1, keepdim=True) - top).exp()
    own = scores.unflatten(1, (-1, n)).unflatten(0, (-1, n))  # (T, n, T, n)
    own = own.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # (T, n, n)
    own = (own - top.unflatten(0, (-1, n))).exp()
    return -(own / (total.unflatten(0, (-1, n)) + EPS) + EPS).log()


def _mean_over_positives(terms: Tensor, y: Tensor) -> Tensor:
    """Mean over the rows of the mean over their positives: terms (T, n, n), y (n,) -> 0-d."""
    positive = (y[:, None] == y).to(terms.dtype)
    return (terms * (positive / positive.sum(1, keepdim=True))).sum(2).mean()
