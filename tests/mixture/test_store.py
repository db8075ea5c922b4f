"""The growing store, and points by class."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ocil.errors import OcilError
from ocil.mixture import store as grouping
from ocil.mixture.store import ClassStore


def test_grouping_and_rounds() -> None:
    labels = np.array([5, 1, 5, 5, 1, 9])
    group = grouping.group_by_class(labels)
    assert group.classes.tolist() == [1, 5, 9] and group.sizes.tolist() == [2, 3, 1]
    assert group.order.tolist() == [1, 4, 0, 2, 3, 5]
    first, second = grouping.split(group, 2)
    assert first.order.tolist() == [1, 4, 0, 2, 5] and second.order.tolist() == [3]
    assert second.classes.tolist() == [5]


def test_store_grows_and_keeps_its_rows() -> None:
    store = ClassStore(torch.device("cpu"), torch.float32)
    store.add("a", (2,), 7.0)
    store.add("n", (), 3, host=True)
    store.grow(1)
    store.put(torch.tensor([0]), {"a": torch.ones(1, 2)})
    store.host("n")[0] = 11
    store.grow(20)
    assert store["a"].shape == (20, 2) and store["a"][0].tolist() == [1, 1]
    assert store["a"][19].tolist() == [7, 7] and store["n"].tolist() == [11] + [3] * 19


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


def test_a_state_whose_counts_are_one_number_is_refused() -> None:
    store = ClassStore(torch.device("cpu"), torch.float32)
    store.add("count", ())
    with pytest.raises(OcilError, match="count"):
        store.load_state_dict({"count": torch.tensor(3.0)})
