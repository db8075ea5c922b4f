"""Who is mixed with whom."""

from __future__ import annotations

import pytest
import torch

from ocil.memory import feedback


def draw(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_chance_to_mix_acts_on_the_batch_and_on_the_image() -> None:
    shares = [feedback.random_partners(50, 0.5, draw(seed))[1] for seed in range(400)]
    every = torch.stack(shares)
    assert float((every > 0).float().mean()) == pytest.approx(0.25, abs=0.04)
    none = (every == 0).all(1).float().mean()  # half of the batches are left alone as a whole
    assert float(none) == pytest.approx(0.5, abs=0.08)
    assert 0.55 < float(every.max()) < 0.6
    assert float(every[every > 0].mean()) == pytest.approx(0.3, abs=0.02)


def test_random_partners_are_a_permutation() -> None:
    partner, share = feedback.random_partners(9, 1.0, draw())
    assert sorted(partner.tolist()) == list(range(9))
    assert partner.tolist() != list(range(9))
    assert (share > 0).all()
    assert not feedback.random_partners(9, 0.0, draw())[1].any()


def test_pairs_are_counted_by_closeness() -> None:
    # distances 0.2, 1, 0.8: q = softmax(5, 1, 1.25) = (0.959, 0.018, 0.023)
    prototypes = torch.tensor([[0.0, 0.0], [0.2, 0.0], [1.0, 0.0]])
    pairs = [tuple(p) for p in feedback.close_pairs(prototypes, 40, draw()).tolist()]
    assert len(pairs) == 40
    assert pairs.count((0, 1)) == 38
    assert pairs.count((0, 2)) == pairs.count((1, 2)) == 1


@pytest.mark.parametrize(("classes", "wanted"), [(3, 16), (3, 2), (4, 3), (30, 7)])
def test_there_are_as_many_pairs_as_asked_for(classes: int, wanted: int) -> None:
    # equal distances: (3, 2) would round up to three pairs, (4, 3) also, (30, 7) down to none
    pairs = feedback.close_pairs(torch.eye(classes), wanted, draw())
    assert pairs.shape == (wanted, 2)
    assert (pairs[:, 0] < pairs[:, 1]).all()


def test_pairs_without_sound_distances() -> None:
    assert feedback.close_pairs(torch.rand(1, 4), 5, draw()).shape == (0, 2)
    assert feedback.close_pairs(torch.empty(0, 4), 5, draw()).shape == (0, 2)
    same = torch.tensor([[1.0], [1.0], [2.0]])
    assert feedback.close_pairs(same, 4, draw()).tolist() == [[0, 1]] * 4
    assert feedback.close_pairs(torch.full((3, 2), torch.nan), 4, draw()).shape == (4, 2)


def test_one_draw_decides_for_all_images_of_a_pair() -> None:
    pairs = torch.tensor([[0, 1]] * 5 + [[0, 2]] * 5)
    mixed = 0
    for seed in range(300):
        share = feedback.pair_shares(pairs, 0.4, draw(seed)).view(2, 5)
        assert all(bool((row > 0).all()) or not row.any() for row in share)
        mixed += int((share > 0).any(1).sum())
    assert mixed / 600 == pytest.approx(0.4, abs=0.06)


def test_shares_follow_the_beta_distribution() -> None:
    pairs = torch.zeros(20_000, 2, dtype=torch.int64)
    share = feedback.pair_shares(pairs, 1.0, draw())
    assert float(share.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(share.var()) == pytest.approx(0.25 / 1.8, abs=0.005)  # 1 / (4 (2 a + 1))


def test_members_come_from_their_class_and_an_absent_class_is_replaced() -> None:
    members, labels = [[0, 3], [], [1, 2]], [0, 2, 2, 0]
    slots = feedback.members_of([0] * 40 + [2] * 40, members, labels, draw())
    assert set(slots[:40]) == {0, 3}
    assert set(slots[40:]) == {1, 2}
    assert set(feedback.members_of([1] * 40 + [7] * 40, members, labels, draw())) == {0, 1, 2, 3}


def test_two_prototypes_are_a_pair_and_one_is_none() -> None:
    two = feedback.close_pairs(torch.eye(2), 3, torch.Generator())
    assert two.tolist() == [[0, 1]] * 3
    assert feedback.close_pairs(torch.eye(2)[:1], 3, torch.Generator()).shape == (0, 2)
