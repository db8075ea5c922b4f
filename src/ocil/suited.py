"""What a classifier chooses by itself, from the items and from what it was given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ocil import backbones, nets
from ocil.data.sources import default_net
from ocil.learners import registry
from ocil.learners.jury import FEW, SHARE

PIXELS = 32 * 32  # of an image; larger ones get fewer gradient steps


def suited(params: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Settings that suit items of a shape, for what the parameters of a classifier leave open.

    Where nothing is trained the net is a fixed encoder and no sample waits for others. Where a net
    is, it gets effort and jury, and vectors that are scaled.
    """
    trains, net = registry.trains(params["method"]), params["net"]
    usual = default_net(shape)
    found = {k: v for k, v in usual.items() if isinstance(params[k], str) and params[k] == "auto"}
    if backbones.named(net):
        found["net"] = usual["net"] if trains else "identity"
    elif not trains and net == "auto":
        found["net"] = nets.fixed_for(shape)
    if not trains:
        return found | {"batch": 1}
    if params["scale"] and len(shape) == 1 and found.get("net", net) == "mlp":
        found["inputs"] = "scaled"
    return found | _of_training(params, shape)


def _of_training(params: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Effort and jury."""
    complete = "max_updates" in params  # the settings of another classifier
    effort = "fixed" if "updates" in params and not complete else params["effort"]
    wanted = {"anchor", "readout", "preset"} & params.keys()  # so is the net
    own = backbones.named(params["net"]) or str(params["net"]) == "auto"
    if effort == "auto" and params["method"] == "otc" and own and not wanted:
        effort = "auto" if len(shape) == 3 else "low"
    found = {"effort": effort, "jury": (params["memory"] or 0) >= FEW * SHARE}
    if effort in ("auto", "high") and math.prod(shape[1:]) > PIXELS:
        found["max_updates"] = 1  # a step takes longer, and the fixed features know most
    return found
