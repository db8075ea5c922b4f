"""What learning asks of its process: threads, memory, and numbers that are numbers."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from typing import TYPE_CHECKING

import torch

from ocil.errors import OcilError

if TYPE_CHECKING:
    from ocil.session import Session

MAX_WEIGHT = 1e6  # size of a layer: squares and products of more lose themselves in float32


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


def fault(session: Session, report: dict[str, torch.Tensor]) -> str:
    """What the last step has ruined, or nothing: a number of its report, or the weights."""
    for name, value in report.items():
        if not math.isfinite(float(value)):
            return f"the {name} became {float(value)}"
    trained = [w for w in session.learner.model.parameters() if w.requires_grad]
    weights = [w.detach() for w in trained if w.numel()]
    if not weights:
        return ""
    largest = float(torch.stack([w.norm() for w in weights]).max())
    return "" if largest <= MAX_WEIGHT else f"the size of the weights became {largest:g}"


def check_sound(session: Session, report: dict[str, torch.Tensor]) -> None:
    """Refuse to go on with a run that a step has ruined."""
    if found := fault(session, report):
        raise OcilError(
            f"{found[0].upper()}{found[1:]} by step {session.step}; lower --lr, it is "
            f"{session.settings.lr:g} (the checkpoints from before are kept)."
        )


def check_call(
    session: Session, report: dict[str, torch.Tensor], error: BaseException | None = None
) -> None:
    """Refuse a step that has ruined something; it is also the true cause of an `error`."""
    if found := fault(session, report):
        raise OcilError(
            f"With lr {session.settings.lr:g} {found}; nothing of this call was kept. Make a "
            "classifier with a lower lr."
        ) from error
