"""A tenth of the storms of `make storm` (bench/storm.py); that of a cluster takes too long."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "times"),
    [("learn.concurrent", 5), ("learn.interrupts", 3), ("learn.kills", 3), ("files.damaged", 300)],
)
def test_a_tenth_of_each_storm(
    name: str, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.syspath_prepend(BENCH)
    (tmp_path / "storm").mkdir()
    module, function = name.split(".")
    run = getattr(importlib.import_module(f"storms.{module}"), function)
    storm = run(times, tmp_path / "storm")
    assert storm.times == times
    assert not storm.violations
