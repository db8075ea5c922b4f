"""Where clusters start: draws in proportion to squared distances, by hand."""

from __future__ import annotations

import pytest
import torch

from ocil.mixture import MixtureSettings, seeding, starts, transport
from ocil.mixture.store import ClassStore

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
    centres = seeding.first_centres(seeding.gram(POINTS, MASK), MASK, noise, spread=True)
    assert centres.argmax(-1).tolist() == [[0, second]]


def test_random_centres_ask_for_no_distance_and_never_repeat() -> None:
    noise = torch.zeros(1, 2, 4)
    noise[0, :, 3] = 5.0
    noise[0, :, 1] = 1.0
    centres = seeding.first_centres(seeding.gram(POINTS, MASK), MASK, noise, spread=False)
    assert centres.argmax(-1).tolist() == [[3, 1]]


def test_the_best_of_several_starts_is_taken() -> None:
    z = torch.tensor([[[0.0], [0.1], [5.0], [5.1], [9.0], [9.1]]])
    mask = torch.ones(1, 6, dtype=torch.bool)
    noise = torch.full((1, 2, 3, 6), -1e9)
    for start, centres in enumerate(((0, 1, 2), (0, 2, 4))):  # the second finds all three groups
        for k, point in enumerate(centres):
            noise[0, start, k, point] = 0.0
    found = seeding.partition(seeding.gram(z, mask), mask, noise, rounds=0)
    assert found[0].argmax(0).tolist() == [0, 0, 1, 1, 2, 2]


def test_the_old_moments_of_a_stepwise_average_are_shares() -> None:
    s = MixtureSettings(components=2, seed_points=4, average="stepwise")
    resp = torch.zeros(1, 2, 4)
    resp[0, 0, :3], resp[0, 1, 3] = 1.0, 1.0
    new = starts.from_clusters(POINTS, MASK, MASK, resp, torch.ones(2), s)
    assert new["old_mass"].tolist() == [[0.75, 0.25]]


def test_a_store_that_takes_up_fewer_rows_keeps_nothing_of_its_own() -> None:
    stores = [ClassStore(torch.device("cpu"), torch.float32) for _ in range(2)]
    for store in stores:
        store.add("a", (2,), 7.0)
        store.add("b", (), 5.0)
        store.add("count", (), host=True)
    stores[0].grow(1)
    stores[1].grow(12)
    for name in ("a", "b", "count"):
        stores[1].columns[name].fill_(3)
    stores[1].load_state_dict(stores[0].state_dict())
    stores[1].grow(12)
    assert stores[1].size == 12
    assert (stores[1]["a"] == 7).all() and (stores[1]["b"] == 5).all()
    assert not stores[1]["count"].any()


def test_a_plan_with_too_little_mass_is_filled_up_evenly_and_not_scaled() -> None:
    half = torch.tensor([0.5, 0.5])
    found = transport._feasible(torch.diag(half / 2), half, half)
    torch.testing.assert_close(found, torch.tensor([[0.375, 0.125], [0.125, 0.375]]))
