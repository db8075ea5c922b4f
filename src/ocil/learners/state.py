"""State as flat names: what learners share when they save and load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch


def below(state: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The entries whose name starts with the prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Moments and step counts as optimizer.NUMBER.NAME, numbered as the parameters are."""
    state = {}
    for i, p in enumerate(_parameters(optimizer)):
        for k, v in optimizer.state.get(p, {}).items():
            state[f"optimizer.{i}.{k}"] = torch.as_tensor(v)
    return state


def load_optimizer_state(
    optimizer: torch.optim.Optimizer, state: Mapping[str, torch.Tensor]
) -> None:
    """Take up what `optimizer_state` gave; its parameters must have their shapes already."""
    for i, p in enumerate(_parameters(optimizer)):
        saved = below(state, f"{i}.")
        if any(v.dim() and v.shape != p.shape for v in saved.values()):
            raise ValueError("a moment of the optimiser has not its parameter's shape")
        if saved:
            # The fused step reads moments in the layout of their parameter (channels last).
            optimizer.state[p] = {
                k: torch.empty_like(p).copy_(v) if v.shape == p.shape else v.to(p.device)
                for k, v in saved.items()
            }


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]
