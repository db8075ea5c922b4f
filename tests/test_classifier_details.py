"""What a classifier that has learned nothing says."""

from __future__ import annotations

from pathlib import Path

import pytest
from sklearn.exceptions import NotFittedError

from ocil import Classifier


def test_there_is_nothing_to_save_before_anything_was_learned(tmp_path: Path) -> None:
    with pytest.raises(NotFittedError, match="nothing to save"):
        Classifier("er").save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
