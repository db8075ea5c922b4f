"""Where clusters start: draws in proportion to squared distances, by hand."""

from __future__ import annotations

import pytest
import torch

from ocil.mixture import Mixtures, MixtureSettings, kmeans
from ocil.mixture.kmeans import draw_gumbel
from ocil.mixture.window import Window

POINTS = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [0.0, -2.0]]])  # their mean is 0
MASK = torch.ones(1, 4, dtype=torch.bool)


@pytest.mark.parametrize(("head_start", "second"), [(0.1, 1), (0.3, 2)])
def test_the_second_centre_is_drawn_by_the_squared_distance_to_the_first(
    head_start: float, second: int
) -> None:
    """From point 0 the others are at 5, 4 and 5: point 2 needs log(5 / 4) = 0.223 to be drawn."""
    noise = torch.zeros(1, 2, 4)
    noise[0, 0, 0] = 1.0  # the first centre is point 0
    noise[0, 1, 2] = head_start
    centres = kmeans.first_centres(kmeans.gram(POINTS, MASK), MASK, noise, spread=True)
    assert centres.argmax(-1).tolist() == [[0, second]]


def test_random_centres_ask_for_no_distance_and_never_repeat() -> None:
    noise = torch.zeros(1, 2, 4)
    noise[0, :, 3] = 5.0
    noise[0, :, 1] = 1.0
    centres = kmeans.first_centres(kmeans.gram(POINTS, MASK), MASK, noise, spread=False)
    assert centres.argmax(-1).tolist() == [[3, 1]]


def test_the_best_of_several_starts_is_taken() -> None:
    z = torch.tensor([[[0.0], [0.1], [5.0], [5.1], [9.0], [9.1]]])
    mask = torch.ones(1, 6, dtype=torch.bool)
    noise = torch.full((1, 2, 3, 6), -1e9)
    for start, centres in enumerate(((0, 1, 2), (0, 2, 4))):  # the second finds all three groups
        for k, point in enumerate(centres):
            noise[0, start, k, point] = 0.0
    found = kmeans.partition(kmeans.gram(z, mask), mask, noise, spread=True, rounds=0)
    assert found[0].argmax(0).tolist() == [0, 0, 1, 1, 2, 2]


def test_the_old_moments_of_a_stepwise_average_are_shares() -> None:
    window = Mixtures(2, MixtureSettings(components=2, objective="stepwise-em")).mover
    resp = torch.zeros(1, 2, 4)
    resp[0, 0, :3], resp[0, 1, 3] = 1.0, 1.0
    young = torch.tensor([False])
    _, *found = kmeans.mixture_of_clusters(POINTS, MASK, resp, young, torch.ones(2), 1e-3)
    assert isinstance(window, Window)
    assert window.start(resp, MASK, *found)["old_mass"].tolist() == [[0.75, 0.25]]


def test_seeding_finds_separated_modes_and_ignores_padding() -> None:
    g = torch.Generator().manual_seed(2)
    label = torch.arange(40) % 4
    centres = 6 * torch.eye(4, 30)
    z = torch.stack([centres[label] + torch.randn(40, 30, generator=g) for _ in range(3)])
    z = torch.cat([z, 1e3 * torch.ones(3, 8, 30)], 1)
    mask = torch.arange(48).expand(3, -1) < 40
    noise = torch.rand(3, 4, 4, 48, generator=g)
    kernel = kmeans.gram(z, mask)
    scores = kmeans.principal_scores(kernel, 4)
    for space in (kernel, scores @ scores.mT):
        found = kmeans.partition(space, mask, noise, spread=True)
        assert bool((found[..., 40:] == 0).all())
        names = found.argmax(1)[:, :40]
        for b in range(3):
            pairs = set(zip(names[b].tolist(), label.tolist(), strict=True))
            assert len(pairs) == 4  # each cluster is one mode
    explicit = sum(
        float((z[0, :40][names[0] == k] - z[0, :40][names[0] == k].mean(0)).square().sum())
        for k in range(4)
    )
    assert abs(float(kmeans.scatter_within(kernel, found)[0]) - explicit) < 1e-2 * explicit


def test_kmeans_spreads_where_random_does_not_have_to() -> None:
    z = torch.cat([torch.zeros(1, 30, 2), torch.full((1, 2, 2), 9.0)], 1)
    mask = torch.ones(1, 32, dtype=torch.bool)
    for seed in range(20):
        noise = torch.rand(1, 1, 2, 32, generator=torch.Generator().manual_seed(seed))
        centres = kmeans.first_centres(kmeans.gram(z, mask), mask, noise[:, 0], True)
        assert float(centres[0, :, 30:].sum()) == 1.0  # the second centre is always in the far mode


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("drawn", [0.0, 1 - 2**-24])
def test_gumbel_variables_are_finite_at_both_ends_of_the_uniform_ones(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, drawn: float
) -> None:
    monkeypatch.setattr(
        torch, "rand", lambda shape, dtype, **_: torch.full(shape, drawn, dtype=dtype)
    )
    assert draw_gumbel((4,), torch.Generator(), torch.empty(0, dtype=dtype)).isfinite().all()


@pytest.mark.parametrize(("weights", "better"), [([0.75, 0.25], False), ([0.25, 0.75], True)])
def test_a_mixture_is_judged_by_the_clusters_that_its_weights_make(
    weights: list[float], better: bool
) -> None:
    """Points at 5 lie between the components at 0 and 10.5, and go to the heavier of the two.

    With those at 0 they make the best clusters there are, scatter 25; with those at 10.5 it is 48,
    and k-means stays there.
    """
    z = torch.tensor([0.0, 0.0, 5.0, 5.0, *[10.5] * 8, 99.0]).view(1, 13, 1)
    mask = torch.arange(13).view(1, 13) < 12  # the last place of the queue is empty
    kernel = kmeans.gram(z, mask)
    found = kmeans.partition(kernel, mask, torch.zeros(1, 1, 2, 13), spread=True)
    assert found.sum(1).tolist() == [[1.0] * 12 + [0.0]]
    mu, var = torch.tensor([[[0.0], [10.5]]]), torch.full((1, 2, 1), 4.0)
    mixture = (mu, var, torch.tensor([weights]).log())
    assert kmeans.clearly_better(found, kernel, z, mask, mixture).tolist() == [better]


def test_the_gram_matrix_is_about_the_mean_of_the_valid_points_of_each_class() -> None:
    z = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0)) + 7
    mask = torch.arange(5) < torch.tensor([[5], [3], [1]])
    found = kmeans.gram(z, mask)
    for points, valid, kernel in zip(z, mask, found, strict=True):
        n = int(valid.sum())
        centred = points[:n] - points[:n].mean(0)
        torch.testing.assert_close(kernel[:n, :n], centred @ centred.T)
        assert not kernel[n:].any() and not kernel[:, n:].any()
