"""A fixed encoder as learners use it, made from the first samples of the stream.

`patches` and `random` are made after exactly 1, 10, 40 and 300 samples, whatever the batches. Until
then the raw samples are kept, as state, and all statistics are made anew from them; at 300 they are
dropped. Any other network stays as it starts.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ocil import nets
from ocil.memory import Memory

STAGES = (1, 10, 40, 300)  # samples after which the encoder is made
Count = Callable[[Tensor, Tensor], None]  # of features (n, d) of classes (n,)
CHUNK = 125  # images per forward pass when features of many are wanted; more only take memory


def as_float(x: Tensor) -> Tensor:
    """uint8 images to float32 in [0, 1]; float input is left as it is."""
    return x.float().div_(255) if x.dtype == torch.uint8 else x.float()


class Encoder:
    """A network without gradients, and the first samples while they are needed."""

    def __init__(self, net: nn.Module, device: torch.device) -> None:
        self.net, self.device = net, device
        self.first = Memory(STAGES[-1], device)

    @property
    def version(self) -> int:
        """Changes when features do: the samples that made it."""
        return int(self.net.fitted) if isinstance(self.net, nets.Fitted) else 0

    @property
    def finished(self) -> bool:
        """Whether no sample to come changes it; so it is if it came from another model, or from a
        state saved without samples, which has none of the first."""
        return not isinstance(self.net, nets.Fitted) or self.first.seen < self.version

    def take(self, x: Tensor, y: Tensor) -> tuple[bool, Tensor, Tensor]:
        """New samples -> whether it was made anew, and the samples that are to be counted."""
        net, first = self.net, self.first
        if self.finished or not isinstance(net, nets.Fitted):
            return False, x, y
        start = len(first)
        slots = list(range(start, min(start + len(y), first.capacity)))
        first.write(slots, x[: len(slots)], y[: len(slots)])
        first.seen = len(first)
        stage = max(s for s in STAGES if s <= first.seen)
        if stage == self.version:
            return False, x, y
        held = slice(len(first))
        net.fit(as_float(first.columns["x"][:stage]))
        x = torch.cat([first.columns["x"][held], x[len(slots) :]])
        y = torch.cat([first.columns["y"][held], y[len(slots) :]])
        if stage == STAGES[-1]:
            first.load_state_dict(first.state_dict(samples=False), 0)
        return True, x, y

    @torch.no_grad()
    def correct(
        self,
        statistics: tuple[Callable[[], None], Count, Count],
        x: Tensor,
        y: Tensor,
        new: Tensor | None,
    ) -> None:
        """Take raw items x (n, ...) of classes y (n,) back, or count them under `new`.

        `statistics`: how to begin anew, to count and to take back. While the first samples are
        held, these have been corrected already: all is made anew of those that are left.
        """
        restart, count, uncount = statistics
        if isinstance(self.net, nets.Fitted) and (n := len(self.first)):
            self.first.seen = n
            images, labels = (self.first.columns[name][:n] for name in "xy")
            self.net.fit(as_float(images[: max(s for s in STAGES if s <= n)]))
            restart()
            count(self.encode(images), labels)
        elif len(y):
            z = self.encode(x)
            uncount(z, y)
            if new is not None:
                count(z, new)

    def encode(self, x: Tensor) -> Tensor:
        """Features (n, d) of raw items."""
        chunks = x.to(self.device).split(CHUNK)
        return torch.cat([self.net(as_float(chunk)) for chunk in chunks])
