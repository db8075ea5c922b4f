"""What a run asks of its process: threads, signals, and numbers that are still finite."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ocil.errors import OcilError


def set_threads(wanted: int | str) -> int:
    count = (os.cpu_count() or 1) if wanted == "auto" else int(wanted)
    torch.set_num_threads(count)
    return count


def keep_freed_memory() -> bool:
    """Let the C library reuse freed memory for the rest of this process; False where it cannot.

    Every step allocates and frees the same feature maps. glibc gives blocks of that size back to
    the system and gets them anew, page fault by page fault (bench/allocator.py). No number
    changes by it; the process keeps the memory of its largest moment.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has none
        return False
    mmap_max, trim_threshold = -4, -1  # names of the options in malloc.h
    return bool(mallopt(mmap_max, 0)) and bool(mallopt(trim_threshold, -1))


def is_due(step: int, every: int) -> bool:
    """Whether something done every so many steps (0: never) is to be done after this one."""
    return every > 0 and step % every == 0


def check_finite(report: dict[str, torch.Tensor], step: int) -> None:
    for name, value in report.items():
        if not math.isfinite(float(value)):
            raise OcilError(
                f"The {name} became {float(value)} by step {step}; lower --lr (the checkpoints "
                "from before are kept)."
            )


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """Collects SIGTERM and Ctrl-C while it is active, so that a step is always finished first."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {n: signal.signal(n, lambda number, _: asked.append(number)) for n in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
