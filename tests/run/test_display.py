"""The live line of a run in a terminal."""

from __future__ import annotations

import pytest
import torch

from ocil.run import display


def test_the_line_tells_the_accuracy_as_soon_as_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(display, "REFRESH", 0.0)
    monkeypatch.setattr(display.Console, "is_terminal", True)
    shown = display.Display("a run", steps=40, n_tasks=5)
    (line,) = shown.tasks
    shown.step(9, 1, {"loss": torch.tensor(0.5)}, speed=120.0)
    assert line.fields["news"] == "task 2/5 · 120 images/s · loss 0.500 · -"
    shown.evaluated({"correct": [3, 1], "total": [4, 4]})
    shown.step(10, 1, {"loss": torch.tensor(0.5)}, speed=120.0)
    assert line.fields["news"].endswith("· accuracy 50.0 %")
    assert line.completed == 10
