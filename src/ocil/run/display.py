"""The live line of a run: task, step, speed, loss, accuracy so far, time left."""

from __future__ import annotations

import time
from typing import Any

import torch
from rich import progress as bars
from rich.console import Console

REFRESH = 0.25  # seconds; reading the loss waits for the device, so not every step


class Display:
    """Silent when the output is not a terminal; as a context manager it cleans up after itself."""

    def __init__(self, title: str, steps: int, tasks: int, done: int = 0) -> None:
        console = Console(stderr=True)
        self.tasks, self.last, self.accuracy = tasks, 0.0, "-"
        self.progress = bars.Progress(
            bars.TextColumn("[bold]{task.description}"),
            bars.BarColumn(bar_width=24),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[news]}"),
            bars.TimeElapsedColumn(),
            bars.TextColumn("left"),
            bars.TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.line = self.progress.add_task(title, total=steps, completed=done, news="")

    def __enter__(self) -> Display:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def step(self, step: int, task: int, report: dict[str, torch.Tensor], speed: float) -> None:
        if self.progress.disable or time.monotonic() - self.last < REFRESH:
            return
        self.last = time.monotonic()
        numbers = " ".join(f"{name} {float(value):.3f}" for name, value in report.items())
        news = f"task {task + 1}/{self.tasks} · {speed:.0f} images/s · {numbers} · {self.accuracy}"
        self.progress.update(self.line, completed=step, news=news)

    def evaluated(self, row: dict[str, Any]) -> None:
        """Show the accuracy over all evaluated images of an evaluation."""
        self.accuracy = f"accuracy {100 * sum(row['correct']) / max(1, sum(row['total'])):.1f} %"
