"""What every method shows of its latent space: points, and what stands for the classes there."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ocil import checks
from ocil.learners import registry
from ocil.learners.otc import Otc
from ocil.learners.readouts import mean_centroids
from ocil.session import Session

LABELS = [3, 1, 0, 2] * 3


def trained(method: str, **changes: object) -> Session:
    session = checks.make(registry.get(method), **changes)
    checks.feed(session, checks.TWO_TASKS)
    return session


@pytest.mark.parametrize("method", registry.names())
def test_points_and_centroids_share_a_space_and_change_nothing(method: str) -> None:
    fast = {"inertia": 0.5} if method == "cope" else {}  # its prototypes need a longer stream
    session = trained(method, **fast)
    learner, before = session.learner, session.state().sha256()
    points = learner.latent_points(checks.images(LABELS))
    found = learner.centroids()
    assert points.shape[0] == len(LABELS)
    assert points.isfinite().all()
    assert session.state().sha256() == before
    if found is None:
        assert not learner.memory.capacity
        return
    assert found.points.shape == (len(found.classes), points.shape[1])
    present = found.classes.unique()  # a memory need not hold every class
    assert len(present) > 1
    for c in present:
        assert float(found.weights[found.classes == c].sum()) == pytest.approx(1.0, abs=1e-4)
    # an easy problem: most points are nearest to a centroid of their own class
    own = torch.tensor(session.labels.encode(LABELS))
    nearest = found.classes[torch.cdist(points.float(), found.points.float()).argmin(1)]
    right = (nearest == own)[torch.isin(own, present)]
    assert float(right.float().mean()) > 0.7


def test_the_mixtures_of_otc_are_told_with_weights_and_variances() -> None:
    session = trained("otc", components=3, **{"start.points": 4})
    assert isinstance(session.learner, Otc)
    mixtures, found = session.learner.mixtures, session.learner.centroids()
    active = mixtures.active
    assert len(found.points) == int(active.sum()) > 4
    assert torch.equal(found.points, mixtures.mu[active])
    assert torch.equal(found.weights, mixtures.log_pi[active].exp())
    assert found.variances is not None
    assert torch.equal(found.variances, mixtures.var[active])
    points = session.learner.latent_points(checks.images(LABELS))
    assert torch.allclose(points.norm(dim=1), torch.ones(len(LABELS)))
    z = session.learner.encode(session.learner.latent, checks.images(LABELS))
    assert torch.allclose(points, F.normalize(z, dim=1))


@pytest.mark.parametrize("readout", ["ema-prototype", "mean"])
def test_cope_shows_what_its_read_out_compares(readout: str) -> None:
    learner = trained("cope", readout=readout).learner
    found, points = learner.centroids(), learner.latent_points(checks.images(LABELS))
    assert found is not None
    prototypes = learner.evolution.prototypes  # type: ignore[attr-defined]
    if readout == "mean":
        assert points.shape[1] != prototypes.shape[1]
        assert found.points.shape[1] == points.shape[1]
    else:
        assert torch.equal(found.points, prototypes)
        scores = points @ prototypes.T
        assert torch.allclose(scores, learner.scores(checks.images(LABELS)), atol=1e-6)


def test_the_last_expert_of_mose_is_shown_unless_all_have_a_say() -> None:
    alone = trained("mose", readout="ema-mean").learner.latent_points(checks.images(LABELS))
    both = trained("mose", readout="ema-moe-mean").learner.latent_points(checks.images(LABELS))
    assert both.shape[1] > alone.shape[1]
    assert torch.allclose(alone.norm(dim=1), torch.ones(len(LABELS)))


def test_mean_centroids() -> None:
    z = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 5.0]])
    found = mean_centroids(z, torch.tensor([2, 2, 0]), 4)
    assert found.classes.tolist() == [0, 2]
    assert found.points.tolist() == [[5.0, 5.0], [2.0, 1.0]]
    assert found.weights.tolist() == [1.0, 1.0]
