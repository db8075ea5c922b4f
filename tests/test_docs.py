"""The code of the tutorial runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ocil

GUIDE = Path(ocil.__file__).parents[2] / "docs" / "own-data.md"


@pytest.mark.skipif(not GUIDE.exists(), reason="an installed package has no docs")
def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert len(blocks) >= 7
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), names)
