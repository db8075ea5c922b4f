"""Signals that wait until a step is over; without torch, for studies wait with them too."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def stop_requests(numbers: Sequence[int] = (signal.SIGTERM, signal.SIGINT)) -> Iterator[list[int]]:
    """Collect signals while this is active, so that a step is always finished first."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        numbers = ()  # not ours to catch
    before = {n: signal.signal(n, lambda number, _: asked.append(number)) for n in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupts_between_steps() -> AbstractContextManager[list[int]]:
    """Collect Ctrl-C, to be obeyed when a step is over; where it is ignored, it stays so."""
    return stop_requests([signal.SIGINT] if callable(signal.getsignal(signal.SIGINT)) else [])
