"""What a learner is built of, from its settings."""

from collections.abc import Sequence
from typing import Any

import torch

from ocil import nets
from ocil.data.sources import standard
from ocil.errors import OcilError
from ocil.learners.scaling import Scale, Scaled
from ocil.settings import Settings

FULL = 1000  # samples a class from which on a batch gets one update, with effort auto or high


def network(
    settings: Settings, shape: Sequence[int], generator: torch.Generator, options: Any = None
) -> torch.nn.Module:
    """The network that the settings name, for items of `shape`; `options`: its own group."""
    return nets.build(
        settings.net,
        shape,
        width=settings.width,
        generator=generator,
        precision=settings.precision,
        init=settings.init,
        standard=standard(settings.data, shape) if settings.inputs == "standardized" else None,
        options=options,
    )


def scale(settings: Settings, net: Any, shape: Sequence[int]) -> Scale | None:
    """Shift and scale in front of a network, where the settings ask for them."""
    if settings.inputs != "scaled":
        return None
    if settings.net == "module":
        raise OcilError(
            "The network is a module of your own, which gets items as they are; leave --inputs at "
            "unit, and let the module scale them."
        )
    found = Scale(shape, torch.device(settings.device))
    net.standard = Scaled(found)
    return found


def check_memory(method: str, needed: bool, images: int | None) -> None:
    """Refuse to go without a memory where a method needs one."""
    if needed and images is None:
        raise OcilError(
            f"{method} cannot do without a memory, but memory is none; give the number of images "
            "to keep, such as --memory 500."
        )


def optimizer(settings: Settings, model: torch.nn.Module) -> torch.optim.Optimizer:
    """AdamW or SGD over all weights."""
    # The fused form does the same arithmetic in one pass; the plain one costs more than the
    # forward and backward pass of the MLP together.
    shared: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    shared |= {"fused": True}
    if settings.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), momentum=settings.momentum, **shared)
    return torch.optim.AdamW(model.parameters(), **shared)


def updates(settings: Settings, classes: int, seen: int) -> int:
    """Gradient steps for a batch by the effort: more while the classes have had few samples."""
    if settings.effort == "fixed":
        return settings.updates
    most = settings.max_updates
    most = {"low": 0, "auto": most, "high": 3 * most}[settings.effort]
    return min(most, max(1, round(FULL * classes / (seen + settings.batch))))
