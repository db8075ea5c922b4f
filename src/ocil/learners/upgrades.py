"""Settings of older files in today's words, where more than a name has changed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

GRADIENT = ("dual", "debiased", "nll")
# What was a setting and is a constant; another value is left as it is, to be refused by its name.
_CONSTANT: dict[str, Any] = {
    "horizon": 512.0, "drift": 1.5, "relax": 0.5, "pooling": 0.01, "ridge": 0.1, "hard": False,
    "average": "window", "eps": 1.0, "floor": 1e-3,
}  # fmt: skip
_WITHOUT_EFFECT = {  # of these settings with the other objectives
    "horizon": ("sinkhorn", "em"), "drift": ("sinkhorn", "em"), "relax": ("sinkhorn",),
    "hard": ("dual", "debiased"), "average": ("sinkhorn",), "eps": ("sinkhorn",),
}  # fmt: skip
# 0 once stood for a word.
_WORD = {
    "watched": "all", "seed_points": "auto", "window": None, "reseed_every": None, "samples": None
}  # fmt: skip


def otc(settings: Mapping[str, Any]) -> dict[str, Any]:
    """OTC's settings before its mixtures had groups: `fit`, `average`, `objective` were three.

    >>> otc({"objective": "dual", "fit": "follow", "eps": 0.3, "window": 0, "relax": 0.5})
    {'objective': 'dual', 'window': None, 'dual.eps': 0.3}
    """
    s = {k: _WORD[k] if k in _WORD and v == 0 else v for k, v in settings.items()}
    fit, objective = s.pop("fit", "follow"), s.get("objective", "sinkhorn")
    if fit != "follow":
        s["objective"] = objective = f"{fit}-em"
    elif objective == "em" and s.get("average") == "stepwise":
        s["objective"] = objective = "stepwise-em"
    if objective in GRADIENT:
        s |= {f"dual.{name}": s.pop(name) for name in ("eps", "floor") if name in s}
    form, features = s.get("preserve_form"), s.pop("preserve_features", "one")
    if form == "printed" and features != "one":
        s["preserve_form"] = f"printed-{features}"
    if s.get("admission") == "flood":
        s["admission"] = "closest"
    if "features" not in s:  # of version 0.1, where preset paper was not yet the paper's algorithms
        if s.get("preset") in ("paper", "paper-literal"):
            s["preset"] += "-0.1"
        if s.get("preserve_form") == "printed":
            s["preserve_form"] = "printed-first"
    for name, value in _CONSTANT.items():
        if s.get(name) == value or objective not in _WITHOUT_EFFECT.get(name, (objective,)):
            s.pop(name, None)
        elif name in ("eps", "floor") and name in s:  # of a plan, not of the dual
            s[f"window.{name}"] = s.pop(name)
    return s


def drop(constants: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that are constants now and have their value."""
    return {k: v for k, v in settings.items() if k not in constants or v != constants[k]}


_BIC = functools.partial(drop, {"bias_steps": 200, "bias_lr": 0.1, "bias_decay": 0.1})
CHANGED = {
    "otc": otc, "bic": _BIC, "bic-ac": _BIC,
    "onpro": functools.partial(drop, {"mixup_top": 0.6, "mixup_shape": 0.4}),
    "co2l": functools.partial(drop, {"linear_batch": 256}),
}  # fmt: skip
