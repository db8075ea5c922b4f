"""What is kept of a stream: an even choice, whatever the calls."""

from __future__ import annotations

import torch

from ocil.moments import ClassMoments
from ocil.moments.kept import MOST, Kept


def after(n: int, size: int) -> Kept:
    kept, share = Kept(1), torch.tensor(2.0**32, dtype=torch.float64)
    for at in torch.arange(n).split(size):
        kept.add(at[:, None].float(), at % 3, at, share)
    return kept


def test_all_of_few_and_an_even_choice_of_many() -> None:
    assert after(MOST, 50).kept_at.tolist() == list(range(MOST))
    for n in (MOST + 1, 5000, 40_000):
        at = after(n, 50).kept_at
        assert MOST // 2 - 20 <= len(at) <= MOST
        spread = torch.histc(at.float(), 8, 0, n)
        assert float(spread.max() / spread.min()) < 1.3


def test_rows_and_labels_stay_together_in_any_calls() -> None:
    one, other = after(3000, 7), after(3000, 3000)
    assert torch.equal(one.kept_at, other.kept_at)
    assert torch.equal(one.kept[:, 0].long(), one.kept_at)
    assert torch.equal(one.kept_labels, one.kept_at % 3)


def test_the_features_kept_of_merged_sums_are_an_even_choice_in_any_order() -> None:
    """Also of many short streams, whose first samples all have the number 0."""
    rows = torch.arange(6000, dtype=torch.float32)[:, None].repeat(1, 2)
    shards = []
    for own in rows.split(4):
        shards.append(ClassMoments(2))
        shards[-1].add(own, (own[:, 0] % 2).long())
    found = []
    for order in (range(1500), reversed(range(1500))):
        total = ClassMoments(2)
        for i in order:
            total.merge(shards[i])
        found.append(sorted(total.kept.kept[:, 0].tolist()))
        assert total.total == 6000 and 200 < len(found[-1]) <= 512
    assert found[0] == found[1]
    places = torch.tensor(found[0]).long()
    assert (
        torch.bincount(places // 600, minlength=10).double() / len(places) - 0.1
    ).abs().max() < 0.05
    assert (torch.bincount(places % 4).double() / len(places) - 0.25).abs().max() < 0.1
