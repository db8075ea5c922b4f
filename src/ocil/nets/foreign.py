"""A module of somebody else as the network: any nn.Module that maps a batch to vectors.

`build("module", ...)` takes the module that `offering` holds out, so that settings and files only
ever say "module": no file names code to import.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from ocil.errors import OcilError

_OFFERED: ContextVar[nn.Module | None] = ContextVar("offered", default=None)


@contextmanager
def offering(module: nn.Module | None) -> Iterator[None]:
    """Hold out a module to `nets.build("module", ...)`."""
    token = _OFFERED.set(module)
    try:
        yield
    finally:
        _OFFERED.reset(token)


def offered() -> nn.Module:
    """The module held out at the moment."""
    module = _OFFERED.get()
    if module is None:
        raise OcilError("The network is a module of your own; give it with net=module.")
    return module


class Foreign(nn.Module):
    """The module as a `Net`; its random draws come from `generator`, never from the global one.

    A module none of whose weights is trained stays in eval mode, so that the statistics of its
    batch norms stay as they are.
    """

    def __init__(self, module: nn.Module, shape: Sequence[int], generator: torch.Generator) -> None:
        super().__init__()
        self.module, self.generator = module, generator
        self.frozen = not any(weight.requires_grad for weight in module.parameters())
        self.features = self._width(tuple(shape))
        self.stage_features = (self.features,)
        self.train()

    def _width(self, shape: tuple[int, ...]) -> int:
        """Length of the vectors, from one item of zeros in eval mode."""
        self.module.eval()
        weight = next(self.module.parameters(), torch.empty(0))
        with torch.no_grad():
            found = self.vectors(torch.zeros(1, *shape, device=weight.device))
        return found.shape[1]

    def vectors(self, x: Tensor) -> Tensor:
        """What the module makes of float items (n, ...), as (n, features); refused if it is not."""
        try:
            with self._own_draws(x.device):
                found = self.module(x)
        except Exception as error:
            problem = " ".join(str(error).split())[:200]
            raise OcilError(
                f"The module given as net fails on float items {tuple(x.shape)} "
                f"({type(error).__name__}: {problem}); wrap it so that it takes them."
            ) from error
        if not isinstance(found, Tensor) or len(found) != len(x) or not found.is_floating_point():
            shown = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise OcilError(
                f"The module given as net makes {shown} of {len(x)} items; it must give one "
                "vector of floats for each."
            )
        return found.flatten(1).float()

    @contextmanager
    def _own_draws(self, device: torch.device) -> Iterator[None]:
        """While training (dropout) the global generator is lent a seed of ours, then restored."""
        if not self.training or self.frozen:
            yield
            return
        seed = int(torch.randint(2**62, (), generator=self.generator))
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            yield

    def train(self, mode: bool = True) -> Foreign:
        super().train(mode)
        if self.frozen:
            self.module.eval()
        return self

    def forward_stages(self, x: Tensor) -> list[Tensor]:
        """The one stage there is, (n, features)."""
        return [self.vectors(x)]

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, features)."""
        return self.vectors(x)
