"""The live line of a run: task, step, speed, loss, accuracy so far, time left."""

from __future__ import annotations

import time
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

REFRESH = 0.25  # seconds; reading the loss waits for the device, so not every step


class Display:
    """Silent when the output is not a terminal; as a context manager it cleans up after itself."""

    def __init__(self, title: str, steps: int, tasks: int, done: int = 0) -> None:
        console = Console(stderr=True)
        self.tasks = tasks
        self.last = 0.0
        self.accuracy = "-"
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
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
