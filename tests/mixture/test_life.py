"""The life of a class, by what its window, queue and old moments hold."""

from __future__ import annotations

import numpy as np
import torch

from ocil.mixture import Mixtures, MixtureSettings
from ocil.mixture.transport import divergence, responsibilities, uniform_log_weights

ONE = torch.zeros(1, dtype=torch.int64)


def fed(points: torch.Tensor, **changes: object) -> Mixtures:
    s = MixtureSettings(**({"components": 1, "seed_points": 4, "queue": 8} | changes))  # type: ignore
    mixtures, draw = Mixtures(points.shape[1], s), torch.Generator().manual_seed(0)
    for point in points:
        mixtures.update(point[None], ONE, draw)
    return mixtures


def test_slots_older_than_the_window_are_told_from_those_in_it() -> None:
    mixtures = Mixtures(1, MixtureSettings(components=1, queue=4, seed_points=2, window=2))
    # seven points: slots hold numbers 4, 5, 6, 3; those before number 5 are settled
    found = mixtures._settled(np.array([7]), np.array([5]))
    assert found.tolist() == [[True, False, False, True]]
    # three points: slot 3 holds none
    assert mixtures._settled(np.array([3]), np.array([2])).tolist() == [[True, True, False, False]]


def test_the_running_variance_follows_the_classes() -> None:
    draw = torch.Generator().manual_seed(1)
    narrow = torch.cat(
        [torch.randn(40, 3, generator=draw), 0.01 * torch.randn(400, 3, generator=draw)]
    )
    mixtures = fed(narrow, window=4, memory=0.0, drift=0.0)
    assert float(mixtures.base.mean()) < 0.05  # from about 1 at the first points


def test_every_point_counts_once_in_a_steady_class() -> None:
    draw = torch.Generator().manual_seed(2)
    z = torch.randn(60, 2, generator=draw)
    mixtures = fed(z, window=4, drift=0.0)
    torch.testing.assert_close(mixtures.mu[0, 0], z.mean(0), rtol=1e-3, atol=1e-3)


def test_a_queue_that_still_fills_is_clustered_anew() -> None:
    """Seeded from one mode; the second mode comes while the queue has room."""
    draw = torch.Generator().manual_seed(3)
    z = 0.1 * torch.randn(32, 2, generator=draw)
    z[8:16] += 0.35  # not far enough to count as clearly better
    found = fed(z[:16], components=2, seed_points=8, queue=32, window=4, reseed_margin=1.0)
    gap = (found.mu[0, 0] - found.mu[0, 1]).norm()
    assert float(gap) > 0.35
    assert found.store.host("seeded").tolist() == [1]


def test_the_divergence_is_debiased_on_both_sides() -> None:
    draw = torch.Generator().manual_seed(4)
    x, y = torch.randn(5, 2, generator=draw), 2 * torch.randn(7, 2, generator=draw)
    a, b = (uniform_log_weights(torch.ones(n, dtype=torch.bool)) for n in (5, 7))
    there, back = divergence(x, y, a, b, 0.5, 500), divergence(y, x, b, a, 0.5, 500)
    torch.testing.assert_close(there, back, rtol=1e-4, atol=1e-5)


def test_a_component_without_weight_has_no_points_and_no_potential() -> None:
    scores = torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(5))
    log_pi = torch.tensor([[0.4, 0.6, 0.0]]).log()
    log_a = uniform_log_weights(torch.ones(1, 5, dtype=torch.bool))
    resp, g = responsibilities(scores, log_pi, log_a, steps=5, relax=1.0)
    assert float(g[0, 2]) == 0.0 and g.isfinite().all()
    assert float(resp[0, 2].sum()) < 1e-20
    torch.testing.assert_close(resp.mean(2)[0, :2], torch.tensor([0.4, 0.6]), rtol=1e-2, atol=1e-2)
