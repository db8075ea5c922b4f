"""Class ids in order of first arrival."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ocil.errors import OcilError
from ocil.labels import LabelMap


def test_ids_follow_the_order_of_first_arrival() -> None:
    labels = LabelMap()
    assert labels.encode(["b", "a", "b"]) == [0, 1, 0]
    assert labels.encode(["c", "a"]) == [2, 1]
    assert labels.classes == ["b", "a", "c"]
    assert labels.decode([2, 0]) == ["c", "b"]
    assert len(labels) == 3


def test_a_map_is_rebuilt_from_its_classes() -> None:
    labels = LabelMap([7, "x", 3])
    assert labels.encode([3, "x", 7, 9]) == [2, 1, 0, 3]


def test_numbers_of_numpy_become_plain_data() -> None:
    labels = LabelMap()
    assert labels.encode(np.array([4, 2, 4])) == [0, 1, 0]  # type: ignore[arg-type]
    assert json.dumps(labels.classes) == "[4, 2]"
    assert labels.encode([2, 4]) == [1, 0]


@pytest.mark.parametrize("label", [1.5, None, np.nan, np.float32(2.5), b"a"])
def test_a_label_that_is_no_whole_number_or_text_is_refused(label: Any) -> None:
    with pytest.raises(OcilError, match="labels must be whole numbers or text"):
        LabelMap().encode([label])


def test_a_forgotten_label_is_free_and_later_ids_move_down() -> None:
    labels = LabelMap(["a", "b", "c"])
    assert labels.forget("b") == 1
    assert labels.encode(["c", "b", "a"]) == [1, 2, 0]
    assert labels.classes == ["a", "c", "b"]
