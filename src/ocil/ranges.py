"""Whether vectors still lie where those that were learned lay, and a new start where they do not.

Shift and scale of vectors are fixed by the first samples. A new class may lie anywhere; samples of
a class that is known should not, unless a sensor speaks in other units now.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ocil.errors import OcilError
from ocil.labels import Label
from ocil.memory import Memory
from ocil.modelfile import Learned
from ocil.text import plain

ENOUGH = 40  # samples in the memory that make a range
SEVERAL = 3  # samples of known classes in a batch from which something is said


def told(now: Learned, x: Tensor, labels: Sequence[Label]) -> bool:
    """Warn of a column that is far off in vectors x (n, d) about to be learned; whether it was.

    Far off: at least half of the samples of known classes lie outside of the range of all that the
    memory holds, by more than that range.
    """
    memory, old = now.session.learner.memory, [i for i, own in enumerate(labels) if now.counts[own]]
    if len(now.form.shape) > 1 or len(memory) < ENOUGH or len(old) < SEVERAL:
        return False
    held, new = memory.columns["x"][: len(memory)], x[old].to(memory.device).float()
    low, high = (end.float() for end in held.aminmax(dim=0))
    span = high - low
    far = ((new < low - span) | (new > high + span)) & (span > 0)
    columns = (2 * far.sum(0) >= len(old)).nonzero()[:, 0].tolist()
    if not columns:
        return False
    c = columns[0]
    named = f"'{plain(now.names[c], 40)}'" if now.names else f"number {c} (from 0)"
    more = f" and {len(columns) - 1} others" if len(columns) > 1 else ""
    warnings.warn(
        f"Column {named}{more} of the latest samples holds values such as {float(new[0, c]):g}, "
        f"but those learned lie between {float(low[c]):g} and {float(high[c]):g}; if its unit has "
        "changed, give it in the former one, or call rescale() once the memory holds the new ones.",
        stacklevel=5,
    )
    return True


def held_samples(now: Learned) -> tuple[Tensor, list[Label]]:
    """All samples of memory and jury, in random order."""
    learner, classes = now.session.learner, now.session.labels.classes
    stores = [learner.parts[name] for name in ("memory", "jury") if name in learner.parts]
    found = [s for s in stores if isinstance(s, Memory) and len(s)]
    if not found:
        raise OcilError("The memory holds no samples to start anew from; learn with a memory.")
    x, y = (torch.cat([s.columns[name][: len(s)].cpu() for s in found]) for name in "xy")
    seed = [now.session.settings.seed, now.session.step]
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(y)))
    return x[order], [classes[c] for c in y[order].tolist()]
