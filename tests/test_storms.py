"""A tenth of each storm of `make storm` (bench/storm.py)."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "times"), [("concurrent", 5), ("interrupts", 3), ("kills", 3)])
def test_a_tenth_of_the_storms_on_learn(
    name: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    (tmp_path / "storm").mkdir()
    storm = getattr(importlib.import_module("storms.learn"), name)(times, tmp_path / "storm")
    assert storm.times == times
    assert not storm.violations
