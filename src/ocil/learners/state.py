"""State as flat names: what learners share when they save and load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

# What the optimisers that are used here remember of a parameter.
_NAMES = (
    (torch.optim.Adam | torch.optim.AdamW, {"step", "exp_avg", "exp_avg_sq"}),
    (torch.optim.SGD, {"momentum_buffer"}),
)


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
    parameters = list(_parameters(optimizer))
    if strange := sorted({k.split(".")[0] for k in state} - set(map(str, range(len(parameters))))):
        raise ValueError(f"the optimiser has no parameter {strange[0]}")
    for i, p in enumerate(parameters):
        saved = below(state, f"{i}.")
        if saved:
            _check(optimizer, p, saved)
            # The fused step reads moments in the layout of their parameter (channels last).
            optimizer.state[p] = {
                k: torch.empty_like(p).copy_(v) if v.shape == p.shape else v.to(p.device, copy=True)
                for k, v in saved.items()
            }


def _check(
    optimizer: torch.optim.Optimizer, p: torch.Tensor, saved: Mapping[str, torch.Tensor]
) -> None:
    """Refuse what the optimiser's next step would stumble over."""
    names = next((names for kind, names in _NAMES if isinstance(optimizer, kind)), set(saved))
    if set(saved) != names:
        raise ValueError(f"the optimiser's state has {sorted(saved)}, not {sorted(names)}")
    for name, value in saved.items():
        if value.shape != (torch.Size() if name == "step" else p.shape):
            raise ValueError(f"{name} of the optimiser has not its parameter's shape")
        if value.dtype != (torch.float32 if name == "step" else p.dtype):
            raise ValueError(f"{name} of the optimiser holds {value.dtype}")


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.nn.Parameter]:
    for group in optimizer.param_groups:
        yield from group["params"]
