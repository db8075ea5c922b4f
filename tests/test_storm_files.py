"""A tenth of the storm of damaged files (bench/storms/files.py)."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.mark.slow
def test_damaged_files_end_in_a_sentence_or_in_the_right_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "bench")
    from storms.files import mutated  # pyright: ignore[reportMissingImports]

    rows = mutated(300, tmp_path)
    assert sum(row.times for row in rows) == 300
    assert [problem for row in rows for problem in row.violations] == []
