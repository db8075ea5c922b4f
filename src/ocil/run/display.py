"""The live line of a run: task, step, speed, loss, accuracy so far, time left."""

from __future__ import annotations

import time
from typing import Any

import torch
from rich import progress as bars
from rich.console import Console

REFRESH = 0.25  # seconds; reading the loss waits for the device, so not every step


class Display(bars.Progress):
    """Silent when the output is not a terminal; as a context manager it cleans up after itself."""

    def __init__(self, title: str, steps: int, n_tasks: int, done: int = 0) -> None:
        console = Console(stderr=True)
        columns = (
            bars.TextColumn("[bold]{task.description}"),
            bars.BarColumn(bar_width=24),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[news]}"),
            bars.TimeElapsedColumn(),
            bars.TextColumn("left"),
            bars.TimeRemainingColumn(),
        )
        super().__init__(*columns, console=console, disable=not console.is_terminal)
        self.n_tasks, self.last, self.accuracy = n_tasks, 0.0, "-"
        self.line = self.add_task(title, total=steps, completed=done, news="")

    def step(self, step: int, task: int, report: dict[str, torch.Tensor], speed: float) -> None:
        if self.disable or time.monotonic() - self.last < REFRESH:
            return
        self.last = time.monotonic()
        numbers = " ".join(f"{name} {float(value):.3f}" for name, value in report.items())
        where = f"task {task + 1}/{self.n_tasks} · {speed:.0f} images/s"
        self.update(self.line, completed=step, news=f"{where} · {numbers} · {self.accuracy}")

    def evaluated(self, row: dict[str, Any]) -> None:
        """Show the accuracy over all evaluated images of an evaluation."""
        self.accuracy = f"accuracy {100 * sum(row['correct']) / max(1, sum(row['total'])):.1f} %"
